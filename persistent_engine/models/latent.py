"""Pieces of latent attention that dense (DeepSeek-V3) and sparse (DeepSeek-V3.2, GLM-5) graphs share.

`tag` goes before the names of activations: `layers.<layer>`, or that of a draft pass, which uses a layer's weights.
"""

from persistent_engine.models.blocks import add_norm, add_projection
from persistent_engine.models.facts import MlaFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph

__all__ = ["add_absorbed", "add_latent", "add_output", "add_queries", "attention_scale"]


def attention_scale(mla: MlaFacts) -> float:
    """What scores are multiplied by."""
    return float((mla.nope + mla.rope) ** -0.5)


def add_latent(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, x: str, tag: str) -> str:
    """Project, normalise, rotate and store the token's row; gives the state plane."""
    prefix, width = f"model.layers.{layer}.self_attn", mla.rank + mla.rope
    weight = f"{prefix}.kv_a_proj_with_mqa.weight"
    latent = add_projection(graph, layer, weight, x, width, facts.hidden, f"{tag}.latent")
    rope = graph.rope(facts.rope.theta, mla.rope)
    state = graph.state(f"layers.{layer}.kv", width)
    norm = graph.vector(f"{prefix}.kv_a_layernorm.weight", mla.rank)
    boxes = (Box(latent), Box(norm), Box(rope), Box(state))
    label = state if tag == f"layers.{layer}" else f"{tag}.kv"
    graph.add("mla_store", label, layer, *boxes, params=(facts.eps, mla.rank, mla.rope))
    return state


def add_queries(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, x: str, tag: str) -> tuple[str, str]:
    """Queries of all heads, and what they are projected from (normalised low rank, or x)."""
    prefix, rows, q = f"model.layers.{layer}.self_attn", facts.heads * (mla.nope + mla.rope), f"{tag}.q"
    if not mla.q_rank:
        return add_projection(graph, layer, f"{prefix}.q_proj.weight", x, rows, facts.hidden, q), x
    low = add_projection(graph, layer, f"{prefix}.q_a_proj.weight", x, mla.q_rank, facts.hidden, f"{tag}.q_a")
    norm = f"{prefix}.q_a_layernorm.weight"
    normed = add_norm(graph, layer, low, norm, mla.q_rank, facts.eps, f"{tag}.q_a_norm")
    return add_projection(graph, layer, f"{prefix}.q_b_proj.weight", normed, rows, mla.q_rank, q), normed


def add_absorbed(graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, q: str, tag: str) -> str:
    """Queries in the latent space, [heads, rank + rope]."""
    kv_b = f"model.layers.{layer}.self_attn.kv_b_proj.weight"
    graph.weight(kv_b, facts.heads * (mla.nope + mla.value), mla.rank)
    out = graph.activation(f"{tag}.absorbed", mla.rank + mla.rope, rows=facts.heads)
    boxes = (
        Box(q, "cols", mla.nope + mla.rope),
        Box(kv_b, "rows", mla.nope + mla.value),
        Box("rope"),
        Box(out, "rows"),
    )
    graph.add("mla_query", out, layer, *boxes, params=(mla.nope, mla.rope, mla.rank, mla.value), rows=facts.heads)
    return out


def add_output(
    graph: Graph, layer: int, facts: ModelFacts, mla: MlaFacts, context: str, residual: str, tag: str
) -> str:
    """Values of all heads, their projection, the residual."""
    prefix, width = f"model.layers.{layer}.self_attn", facts.heads * mla.value
    values = graph.activation(f"{tag}.values", width)
    up = Box(f"{prefix}.kv_b_proj.weight", "rows", mla.nope + mla.value)
    boxes = (Box(context, "rows"), up, Box(values, "cols", mla.value))
    graph.add("mla_value", values, layer, *boxes, params=(mla.nope, mla.value, mla.rank), rows=facts.heads)
    out = f"{prefix}.o_proj.weight"
    return add_projection(graph, layer, out, values, facts.hidden, width, f"{tag}.attention", residual)
