"""Graph of the MLA family (DeepSeek-V3): absorbed latent attention, dense then routed feed-forward."""

from persistent_engine.models.blocks import (
    add_embedding,
    add_feed_forward,
    add_head,
    add_norm,
    add_projection,
)
from persistent_engine.models.facts import MlaFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph

__all__ = ["build_mla"]


def _add_query(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, x: str) -> str:
    tag, prefix = f"layers.{layer}", f"model.layers.{layer}.self_attn"
    rows, q = facts.heads * (mla.nope + mla.rope), f"{tag}.q"
    if not mla.q_rank:
        return add_projection(graph, layer, f"{prefix}.q_proj.weight", x, rows, facts.hidden, q)
    low = add_projection(graph, layer, f"{prefix}.q_a_proj.weight", x, mla.q_rank, facts.hidden, f"{tag}.q_a")
    norm = f"{prefix}.q_a_layernorm.weight"
    normed = add_norm(graph, layer, low, norm, mla.q_rank, facts.eps, f"{tag}.q_a_norm")
    return add_projection(graph, layer, f"{prefix}.q_b_proj.weight", normed, rows, mla.q_rank, q)


def _add_attention(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, residual: str) -> str:
    tag, prefix, heads = f"layers.{layer}", f"model.layers.{layer}.self_attn", facts.heads
    width = mla.rank + mla.rope
    norm = f"model.layers.{layer}.input_layernorm.weight"
    x = add_norm(graph, layer, residual, norm, facts.hidden, facts.eps, f"{tag}.attention_norm")
    weight = f"{prefix}.kv_a_proj_with_mqa.weight"
    latent = add_projection(graph, layer, weight, x, width, facts.hidden, f"{tag}.latent")
    q = _add_query(graph, layer, facts, mla, x)
    rope = graph.rope(facts.rope.theta, mla.rope)
    state = graph.state(f"layers.{layer}.kv", width)
    kv_norm = graph.vector(f"{prefix}.kv_a_layernorm.weight", mla.rank)
    store = (Box(latent), Box(kv_norm), Box(rope), Box(state))
    graph.add("mla_store", state, layer, *store, params=(facts.eps, mla.rank, mla.rope))
    kv_b = graph.weight(f"{prefix}.kv_b_proj.weight", heads * (mla.nope + mla.value), mla.rank)
    absorbed = graph.activation(f"{tag}.absorbed", width, rows=heads)
    up = Box(kv_b, "rows", mla.nope + mla.value)
    graph.add(
        "mla_query",
        absorbed,
        layer,
        Box(q, "cols", mla.nope + mla.rope),
        up,
        Box(rope),
        Box(absorbed, "rows"),
        params=(mla.nope, mla.rope, mla.rank, mla.value),
        rows=heads,
    )
    scores = graph.activation(f"{tag}.scores", graph.capacity, rows=heads)
    context = graph.activation(f"{tag}.context", mla.rank, rows=heads)
    graph.add(
        "mla_attend",
        context,
        layer,
        Box(absorbed, "rows"),
        Box(state),
        Box(scores, "rows"),
        Box(context, "rows"),
        params=((mla.nope + mla.rope) ** -0.5, mla.rank, mla.rope),
        rows=heads,
    )
    values = graph.activation(f"{tag}.values", heads * mla.value)
    boxes = (Box(context, "rows"), up, Box(values, "cols", mla.value))
    graph.add("mla_value", values, layer, *boxes, params=(mla.nope, mla.value, mla.rank), rows=heads)
    out = f"{prefix}.o_proj.weight"
    return add_projection(graph, layer, out, values, facts.hidden, heads * mla.value, f"{tag}.attention", residual)


def build_mla(graph: Graph, facts: ModelFacts) -> None:
    """Add one decode step of `facts` (attention: MlaFacts) to `graph`. Draft layers are not run."""
    assert isinstance(facts.attention, MlaFacts)
    x = add_embedding(graph, facts)
    for layer in range(facts.layers):
        x = _add_attention(graph, layer, facts, facts.attention, x)
        x = add_feed_forward(graph, layer, facts, x)
    add_head(graph, facts, x)
