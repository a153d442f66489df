"""Graph of the MLA family (DeepSeek-V3, Kimi-K2): absorbed latent attention, dense then routed feed-forward."""

from persistent_engine.models.blocks import add_embedding, add_feed_forward, add_norm, add_sample
from persistent_engine.models.facts import MlaFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph
from persistent_engine.models.latent import add_absorbed, add_latent, add_output, add_queries, attention_scale

__all__ = ["build_mla"]


def _add_attention(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, residual: str) -> str:
    tag, heads = f"layers.{layer}", facts.heads
    norm = f"model.layers.{layer}.input_layernorm.weight"
    x = add_norm(graph, layer, residual, norm, facts.hidden, facts.eps, f"{tag}.attention_norm")
    state = add_latent(graph, layer, facts, mla, x, tag)
    q, _ = add_queries(graph, layer, facts, mla, x, tag)
    absorbed = add_absorbed(graph, layer, facts, mla, q, tag)
    scores = graph.activation(f"{tag}.scores", graph.capacity, rows=heads)
    context = graph.activation(f"{tag}.context", mla.rank, rows=heads)
    boxes = (Box(absorbed, "rows"), Box(state), Box(scores, "rows"), Box(context, "rows"))
    params = (attention_scale(mla), mla.rank, mla.rope)
    graph.add("mla_attend", context, layer, *boxes, params=params, rows=heads)
    return add_output(graph, layer, facts, mla, context, residual, tag)


def build_mla(graph: Graph, facts: ModelFacts) -> None:
    """Add one decode step of `facts` (attention: MlaFacts) to `graph`. Draft layers are not run."""
    assert isinstance(facts.attention, MlaFacts)
    x = add_embedding(graph, facts)
    for layer in range(facts.layers):
        x = _add_attention(graph, layer, facts, facts.attention, x)
        x = add_feed_forward(graph, layer, facts, x)
    add_sample(graph, facts, x)
