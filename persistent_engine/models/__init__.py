"""Models: facts read from a checkpoint's config.json, the graph of one decode step, the weights."""

from persistent_engine.models.facts import ExpertFacts, GqaFacts, MlaFacts, ModelFacts, RopeFacts, read_facts
from persistent_engine.models.gqa import build_gqa
from persistent_engine.models.graph import Box, Buffer, Graph, Node
from persistent_engine.models.mla import build_mla
from persistent_engine.models.weights import load_weights, rope_table
from persistent_engine.plan import Dtype

__all__ = [
    "Box",
    "Buffer",
    "ExpertFacts",
    "GqaFacts",
    "Graph",
    "MlaFacts",
    "ModelFacts",
    "Node",
    "RopeFacts",
    "build_graph",
    "load_weights",
    "read_facts",
    "rope_table",
]


def build_graph(facts: ModelFacts, capacity: int, tile: int, state_dtype: Dtype) -> Graph:
    """The graph of one decode step. capacity: tokens of state in a slot. tile: tokens of a key tile (GQA only)."""
    weight_dtype = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    graph = Graph(facts.architecture, capacity, weight_dtype, state_dtype)
    if isinstance(facts.attention, MlaFacts):
        build_mla(graph, facts)
    else:
        build_gqa(graph, facts, tile)
    return graph
