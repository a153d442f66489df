"""The compiler: from a model's facts and a device profile to a plan. Same input, same bytes."""

from persistent_engine.compile.assign import POLICIES
from persistent_engine.compile.depend import depend
from persistent_engine.compile.encode import encode_tables
from persistent_engine.compile.events import connect
from persistent_engine.compile.profile import DeviceProfile, this_cpu
from persistent_engine.compile.tile import tile
from persistent_engine.models import ModelFacts, build_graph
from persistent_engine.plan import Dtype, Plan
from speedtier.errors import PlanError

__all__ = ["POLICIES", "DeviceProfile", "compile_plan", "this_cpu"]


def compile_plan(
    facts: ModelFacts,
    profile: DeviceProfile,
    *,
    capacity: int,
    tile_tokens: int = 128,
    state_dtype: Dtype | None = None,
    policy: str = "list",
    tiles_per_worker: int = 1,
) -> Plan:
    """A plan for one decode step of one request.

    capacity: most tokens of state. tile_tokens: tokens of a transposed key tile (the prefill server's block size; GQA
    only). state_dtype: of the slot; default the checkpoint's.
    Raises: PlanError for an unknown policy or a capacity that the model's positions do not reach.
    """
    if policy not in POLICIES:
        raise PlanError(f"policy is {policy!r}; choose one of {', '.join(POLICIES)}")
    if not 1 <= capacity <= facts.max_position:
        raise PlanError(
            f"capacity is {capacity}; choose 1 to the model's max_position_embeddings, {facts.max_position}"
        )
    rounded = -(-capacity // tile_tokens) * tile_tokens
    if state_dtype is None:
        state_dtype = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    graph = build_graph(facts, rounded, tile_tokens, state_dtype)
    pieces = tile(graph, profile, tiles_per_worker)
    producers = depend(pieces)
    workers = POLICIES[policy](graph, pieces, producers, profile)
    schedule = connect(pieces, producers, workers, [graph.nodes[piece.node].label for piece in pieces])
    limits = {"capacity": capacity, "vocabulary": facts.vocabulary, "tile_tokens": tile_tokens}
    return encode_tables(graph, pieces, schedule, profile, limits)
