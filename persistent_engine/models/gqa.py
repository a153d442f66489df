"""Graph of the GQA family (Qwen3, Llama): grouped-query attention, dense feed-forward."""

from persistent_engine.models.blocks import (
    add_embedding,
    add_feed_forward,
    add_norm,
    add_projection,
    add_sample,
)
from persistent_engine.models.facts import GqaFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph

__all__ = ["build_gqa"]


def _norm_weight(graph: Graph, layer: int, gqa: GqaFacts, which: str) -> str:
    """Weight of the per-head norm; any vector of the right width where the model has none (it is not read)."""
    name = f"model.layers.{layer}.self_attn.{which}_norm.weight"
    return graph.vector(name, gqa.head_dim) if gqa.normed else "rope"


def _add_store(graph: Graph, layer: int, facts: ModelFacts, gqa: GqaFacts, x: str, tile: int) -> list[tuple[str, str]]:
    tag, prefix, width = f"layers.{layer}", f"model.layers.{layer}.self_attn", gqa.kv_heads * gqa.head_dim
    key = add_projection(graph, layer, f"{prefix}.k_proj.weight", x, width, facts.hidden, f"{tag}.key")
    value = add_projection(graph, layer, f"{prefix}.v_proj.weight", x, width, facts.hidden, f"{tag}.value")
    norm = Box(_norm_weight(graph, layer, gqa, "k"), rows=(0, 1))
    planes = []
    for head in range(gqa.kv_heads):
        keys = graph.state(f"layers.{layer}.k.{head}", gqa.head_dim)
        values = graph.state(f"layers.{layer}.v.{head}", gqa.head_dim)
        cols = (head * gqa.head_dim, (head + 1) * gqa.head_dim)
        boxes = (Box(key, cols=cols), Box(value, cols=cols), norm, Box("rope"), Box(keys), Box(values))
        graph.add("gqa_store", keys, layer, *boxes, params=(facts.eps, float(gqa.normed), tile))
        planes.append((keys, values))
    return planes


def _add_attention(graph: Graph, layer: int, facts: ModelFacts, gqa: GqaFacts, residual: str, tile: int) -> str:
    tag, prefix, heads, width = f"layers.{layer}", f"model.layers.{layer}.self_attn", facts.heads, gqa.head_dim
    norm = f"model.layers.{layer}.input_layernorm.weight"
    x = add_norm(graph, layer, residual, norm, facts.hidden, facts.eps, f"{tag}.attention_norm")
    q = add_projection(graph, layer, f"{prefix}.q_proj.weight", x, heads * width, facts.hidden, f"{tag}.q")
    graph.rope(facts.rope.theta, width)
    planes = _add_store(graph, layer, facts, gqa, x, tile)
    rotated = graph.activation(f"{tag}.query", width, rows=heads)
    scores = graph.activation(f"{tag}.scores", graph.capacity, rows=heads)
    context = graph.activation(f"{tag}.context", heads * width)
    q_norm = Box(_norm_weight(graph, layer, gqa, "q"), rows=(0, 1))
    boxes = (Box(q, "cols", width), q_norm, Box("rope"), Box(rotated, "rows"))
    graph.add("gqa_query", rotated, layer, *boxes, params=(facts.eps, float(gqa.normed)), rows=heads)
    group = heads // gqa.kv_heads
    for head, (keys, values) in enumerate(planes):
        rows = (head * group, (head + 1) * group)
        out = Box(context, cols=(rows[0] * width, rows[1] * width))
        inputs = (Box(rotated, rows=rows), Box(keys), Box(values))
        params = (width**-0.5, tile)
        graph.add("gqa_attend", f"{context}.{head}", layer, *inputs, Box(scores, rows=rows), out, params=params)
    weight = f"{prefix}.o_proj.weight"
    return add_projection(graph, layer, weight, context, facts.hidden, heads * width, f"{tag}.attention", residual)


def build_gqa(graph: Graph, facts: ModelFacts, tile: int) -> None:
    """Add one decode step of `facts` (attention: GqaFacts) to `graph`. tile: tokens of a key tile in the slot."""
    assert isinstance(facts.attention, GqaFacts)
    x = add_embedding(graph, facts)
    for layer in range(facts.layers):
        x = _add_attention(graph, layer, facts, facts.attention, x, tile)
        x = add_feed_forward(graph, layer, facts, x)
    add_sample(graph, facts, x)
