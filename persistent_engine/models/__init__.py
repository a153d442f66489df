"""Models: facts read from a checkpoint's config.json, the graph of one decode step, the weights."""

from persistent_engine.models.config import plan_facts, read_facts
from persistent_engine.models.dsa import DRAFT, build_dsa
from persistent_engine.models.facts import (
    ExpertFacts,
    GqaFacts,
    IndexerFacts,
    MlaFacts,
    ModelFacts,
    RopeFacts,
    runnable,
)
from persistent_engine.models.gqa import build_gqa
from persistent_engine.models.graph import Box, Buffer, Graph, Node
from persistent_engine.models.known import KNOWN, facts_of, source_of
from persistent_engine.models.mla import build_mla
from persistent_engine.models.weights import load_weights, rope_table
from persistent_engine.plan import Dtype
from speedtier.errors import PlanError

__all__ = [
    "DRAFT",
    "KNOWN",
    "Box",
    "Buffer",
    "ExpertFacts",
    "GqaFacts",
    "Graph",
    "IndexerFacts",
    "MlaFacts",
    "ModelFacts",
    "Node",
    "RopeFacts",
    "build_graph",
    "facts_of",
    "load_weights",
    "plan_facts",
    "read_facts",
    "rope_table",
    "runnable",
    "source_of",
]


def build_graph(
    facts: ModelFacts,
    capacity: int,
    tile: int,
    state_dtype: Dtype,
    *,
    weight_dtype: Dtype | None = None,
    kept_dtype: Dtype | None = None,
    draft_depth: int = 0,
    part_tokens: int = 0,
) -> Graph:
    """The graph of one decode step on one device.

    capacity: tokens of state in a slot. tile: tokens of a key tile (GQA only). weight_dtype: of matrices, default the
    checkpoint's; kept_dtype: of those that quantised checkpoints leave alone, default the checkpoint's.
    draft_depth: tokens to draft. part_tokens: of a part of attention, see `build_dsa`; both for sparse attention only.
    Raises: PlanError for drafts that the model has no layer for.
    """
    own = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    graph = Graph(facts.architecture, capacity, weight_dtype or own, state_dtype, kept_dtype or own)
    if draft_depth and not (facts.draft_layers and facts.indexer):
        raise PlanError(
            f"draft depth is {draft_depth}, but {facts.architecture} has no draft layer that plans are made for; use 0"
        )
    if facts.indexer is not None:
        build_dsa(graph, facts, draft_depth, part_tokens)
    elif isinstance(facts.attention, MlaFacts):
        build_mla(graph, facts)
    else:
        build_gqa(graph, facts, tile)
    return graph
