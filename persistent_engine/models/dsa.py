"""Graph of the DSA family (DeepSeek-V3.2, GLM-5): latent attention over tokens that an indexer chose; draft layer.

Source: transformers' `modeling_glm_moe_dsa` and `modeling_deepseek_v32`; DeepSeek-V3 (arXiv 2412.19437) section 2.2 and
vllm/model_executor/models/deepseek_mtp.py for the draft layer.

A graph is of one token. With drafts a step verifies 1 + depth tokens at once: costs scale by `Workload.tokens`, except
in nodes whose label starts with `draft.`, which run one token after the other, from the final norm's hidden values.
"""

from persistent_engine.models.blocks import (
    add_embedding,
    add_feed_forward,
    add_logits,
    add_norm,
    add_projection,
    add_sample,
)
from persistent_engine.models.facts import IndexerFacts, MlaFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph
from persistent_engine.models.latent import add_absorbed, add_latent, add_output, add_queries, attention_scale
from persistent_engine.plan import Dtype

__all__ = ["DRAFT", "build_dsa"]

DRAFT = "draft."
"""How the labels of nodes start that draft, one token at a time."""

_INDEX_EPS = 1e-6


def _add_index_key(graph: Graph, layer: int, facts: ModelFacts, indexer: IndexerFacts, x: str, tag: str) -> str:
    prefix, width = f"model.layers.{layer}.self_attn.indexer", indexer.width
    key = add_projection(graph, layer, f"{prefix}.wk.weight", x, width, facts.hidden, f"{tag}.index_key")
    weight = graph.vector(f"{prefix}.k_norm.weight", width)
    bias = graph.vector(f"{prefix}.k_norm.bias", width)
    state = graph.state(f"layers.{layer}.index", width)
    boxes = (Box(key), Box(weight), Box(bias), Box("rope"), Box(state))
    params = (_INDEX_EPS, facts.rope.width, float(indexer.interleaved))
    graph.add("index_store", f"{tag}.index", layer, *boxes, params=params)
    return state


def _add_indexer(graph: Graph, layer: int, facts: ModelFacts, indexer: IndexerFacts, x: str, low: str, tag: str) -> str:
    """The positions that queries of this layer attend to. low: what queries are projected from."""
    prefix, heads = f"model.layers.{layer}.self_attn.indexer", indexer.heads
    state = _add_index_key(graph, layer, facts, indexer, x, tag)
    cols = graph.buffers[low].cols
    q = add_projection(graph, layer, f"{prefix}.wq_b.weight", low, heads * indexer.width, cols, f"{tag}.index_q")
    query = graph.activation(f"{tag}.index_query", indexer.width, rows=heads)
    rotated = (Box(q, "cols", indexer.width), Box("rope"), Box(query, "rows"))
    params = (facts.rope.width, float(indexer.interleaved))
    graph.add("index_query", query, layer, *rotated, params=params, rows=heads)
    name = f"{prefix}.weights_proj.weight"
    weights = add_projection(graph, layer, name, x, heads, facts.hidden, f"{tag}.index_weights", kept=True)
    scores = graph.activation(f"{tag}.index_scores", graph.capacity)
    boxes = (Box(query), Box(weights), Box(state), Box(scores, "cols"))
    scale = (indexer.width * heads) ** -0.5
    graph.add("index_scores", scores, layer, *boxes, params=(scale,), rows=graph.capacity)
    ids = graph.activation(f"{tag}.index_ids", min(indexer.top_k, graph.capacity), dtype=Dtype.I32)
    graph.add("index_select", ids, layer, Box(scores), Box(ids))
    return ids


def _add_attend(
    graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, boxes: tuple[Box, Box], part_tokens: int, tag: str
) -> str:
    """Attention of the absorbed queries. boxes: state, ids. part_tokens: chosen tokens of a part; 0 for no parts."""
    heads, scale, absorbed = facts.heads, attention_scale(mla), f"{tag}.absorbed"
    context = graph.activation(f"{tag}.context", mla.rank, rows=heads)
    if not part_tokens:
        around = (Box(absorbed, "rows"), *boxes, Box(context, "rows"))
        graph.add("mla_attend_sparse", context, layer, *around, params=(scale, mla.rank, mla.rope), rows=heads)
        return context
    count = -(-graph.buffers[boxes[1].buffer].cols // part_tokens)
    parts = graph.activation(f"{tag}.parts", heads * (mla.rank + 2), rows=count)
    around = (Box(absorbed), *boxes, Box(parts, "rows"))
    params = (scale, mla.rank, mla.rope, part_tokens)
    graph.add("mla_attend_sparse_part", parts, layer, *around, params=params, rows=count)
    both = (Box(parts, "cols", mla.rank + 2), Box(context, "rows"))
    graph.add("mla_combine", context, layer, *both, params=(mla.rank,), rows=heads)
    return context


def _add_layer(
    graph: Graph, layer: int, facts: ModelFacts, x: str, ids: str, part_tokens: int, tag: str
) -> tuple[str, str]:
    """Gives the residual stream after the layer, and the ids that its attention used."""
    mla, indexer = facts.attention, facts.indexer
    assert isinstance(mla, MlaFacts) and indexer is not None
    residual = x
    norm = f"model.layers.{layer}.input_layernorm.weight"
    x = add_norm(graph, layer, residual, norm, facts.hidden, facts.eps, f"{tag}.attention_norm")
    state = add_latent(graph, layer, facts, mla, x, tag)
    q, low = add_queries(graph, layer, facts, mla, x, tag)
    if layer >= facts.layers or indexer.full[layer]:
        ids = _add_indexer(graph, layer, facts, indexer, x, low, tag)
    add_absorbed(graph, layer, facts, mla, q, tag)
    context = _add_attend(graph, layer, facts, mla, (Box(state), Box(ids)), part_tokens, tag)
    out = add_output(graph, layer, facts, mla, context, residual, tag)
    return add_feed_forward(graph, layer, facts, out, tag), ids


def _add_draft(graph: Graph, facts: ModelFacts, place: int, token: Box, hidden: str, part_tokens: int) -> str:
    """Draft one token into the carried row; gives the normalised hidden values that the next one starts from."""
    layer, tag, width = facts.layers, f"{DRAFT}{place}", facts.hidden
    prefix = f"model.layers.{layer}"
    embedding = graph.activation(f"{tag}.embedding", width)
    graph.add("embed_drafted", embedding, layer, Box("model.embed_tokens.weight"), token, Box(embedding))
    norms = [graph.vector(f"{prefix}.{name}.weight", width) for name in ("enorm", "hnorm")]
    both = graph.activation(f"{tag}.both", 2 * width)
    boxes = (Box(embedding), Box(hidden), *map(Box, norms), Box(both))
    graph.add("draft_input", both, layer, *boxes, params=(facts.eps,))
    x = add_projection(graph, layer, f"{prefix}.eh_proj.weight", both, width, 2 * width, f"{tag}.in")
    x, _ = _add_layer(graph, layer, facts, x, "", part_tokens, tag)
    hidden, logits = add_logits(graph, facts, x, layer, f"{prefix}.shared_head.norm.weight", f"{tag}.")
    graph.add("choose", f"{tag}.token", layer, Box(logits), Box("drafted", cols=(place, place + 1)))
    return hidden


def build_dsa(graph: Graph, facts: ModelFacts, draft_depth: int = 0, part_tokens: int = 0) -> None:
    """Add one decode step of `facts` (with `indexer`) to `graph`.

    draft_depth: tokens that the draft layer proposes; the step then verifies those of the step before instead of
    sampling. part_tokens: chosen tokens of one part of attention; 0 for no parts.
    """
    x, ids = add_embedding(graph, facts), ""
    for layer in range(facts.layers):
        x, ids = _add_layer(graph, layer, facts, x, ids, part_tokens, f"layers.{layer}")
    if not draft_depth:
        add_sample(graph, facts, x)
        return
    hidden, logits = add_logits(graph, facts, x, facts.layers, "model.norm.weight")
    drafted = graph.carried("drafted", draft_depth, Dtype.I32)
    accepted = graph.activation("accepted", draft_depth + 1, dtype=Dtype.I32)
    graph.add("verify", "next_token", facts.layers, Box(logits), Box(drafted), Box(accepted))
    token = Box(accepted, cols=(0, 1))
    for place in range(draft_depth):
        hidden = _add_draft(graph, facts, place, token, hidden, part_tokens)
        token = Box(drafted, cols=(place, place + 1))
