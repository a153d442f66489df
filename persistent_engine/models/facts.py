"""Numeric facts of a model: all that a graph builder needs to know of it.

Invariant: facts say what the model is; what the engine on this machine cannot compute exactly is named in `unsupported`
and refused by `runnable`, never approximated.
"""

from typing import Literal

import msgspec

from speedtier.errors import PlanError

__all__ = ["ExpertFacts", "GqaFacts", "IndexerFacts", "MlaFacts", "ModelFacts", "RopeFacts", "runnable"]


class RopeFacts(msgspec.Struct, frozen=True):
    """Rotary embedding: base, and how many values of a head are rotated."""

    theta: float
    width: int


class MlaFacts(msgspec.Struct, frozen=True):
    """Widths of multi-head latent attention. q_rank 0: queries are projected in one step."""

    q_rank: int
    rank: int
    nope: int
    rope: int
    value: int


class IndexerFacts(msgspec.Struct, frozen=True):
    """Sparse attention. heads and width of the indexer; top_k: tokens that a query attends to. full: for each layer
    whether it has an indexer; one that has none attends to the tokens that the last indexer before it chose.
    interleaved: neighbouring values are rotated (GLM-5), not halves (DeepSeek-V3.2)."""

    heads: int
    width: int
    top_k: int
    full: tuple[bool, ...]
    interleaved: bool


class GqaFacts(msgspec.Struct, frozen=True):
    """Grouped-query attention. normed: queries and keys are normalised per head."""

    kv_heads: int
    head_dim: int
    normed: bool


class ExpertFacts(msgspec.Struct, frozen=True):
    """Routed experts of layers >= dense_layers."""

    count: int
    active: int
    width: int
    shared: int
    groups: int
    kept_groups: int
    scaling: float
    renormalise: bool
    dense_layers: int


class ModelFacts(msgspec.Struct, frozen=True):
    """All numbers that a graph builder needs. eos: token ids that end a reply. unsupported: a message for each thing
    that the engine on this machine lacks; plans for other machines are made all the same."""

    architecture: str
    layers: int
    draft_layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    eps: float
    tied: bool
    max_position: int
    dtype: Literal["float32", "bfloat16"]
    rope: RopeFacts
    attention: MlaFacts | GqaFacts
    experts: ExpertFacts | None
    eos: tuple[int, ...]
    indexer: IndexerFacts | None = None
    unsupported: tuple[str, ...] = ()


def runnable(facts: ModelFacts) -> ModelFacts:
    """`facts`, if the engine on this machine computes them exactly. Raises: PlanError for the first thing it lacks."""
    if facts.unsupported:
        raise PlanError(facts.unsupported[0])
    return facts
