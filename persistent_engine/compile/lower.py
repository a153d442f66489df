"""Pass `lower`: a model's facts as the graph of one decode step.

Output spec (`require_lowered`): every activation is written before it is read; every box names a buffer.
"""

from persistent_engine.compile.knobs import Knobs
from persistent_engine.compile.place import written
from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.models import Graph, ModelFacts, build_graph
from persistent_engine.plan import BufferKind, Dtype
from speedtier.errors import PlanError

__all__ = ["lower", "require_lowered"]

MOST_PARTS = 128
"""Parts of split attention by default, at most: their sums are added one after the other."""


def lower(
    facts: ModelFacts,
    profile: DeviceProfile,
    capacity: int,
    tile_tokens: int,
    state_dtype: Dtype | None,
    knobs: Knobs,
) -> Graph:
    """The graph, for `capacity` tokens rounded up to whole key tiles."""
    rounded = -(-capacity // tile_tokens) * tile_tokens
    if state_dtype is None:
        state_dtype = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    part_tokens = 0
    if facts.indexer is not None and (knobs.parts or profile.lanes > 1):
        parts = knobs.parts or min(MOST_PARTS, profile.lanes)
        part_tokens = -(-min(facts.indexer.top_k, rounded) // parts)
    return build_graph(
        facts,
        rounded,
        tile_tokens,
        state_dtype,
        weight_dtype=knobs.weight_dtype,
        draft_depth=knobs.draft_depth,
        part_tokens=part_tokens,
    )


def require_lowered(graph: Graph) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    known: set[str] = set()
    for node in graph.nodes:
        outputs = written(node)
        for box in node.boxes:
            if box.buffer not in graph.buffers:
                raise PlanError(f"operator {node.label!r} names {box.buffer!r}, which is no buffer")
            activation = graph.buffers[box.buffer].kind == BufferKind.ACTIVATION
            if activation and box.buffer not in known and box.buffer not in outputs:
                raise PlanError(f"operator {node.label!r} reads {box.buffer!r} before it is written")
        known.update(outputs)
