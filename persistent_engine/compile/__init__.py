"""The compiler: from a model's facts and a machine to a plan. Same input, same bytes."""

from collections.abc import Callable

from persistent_engine.compile.assign import POLICIES, assign, require_assigned
from persistent_engine.compile.comm import localise, require_local
from persistent_engine.compile.depend import depend, require_dependent
from persistent_engine.compile.encode import encode_tables
from persistent_engine.compile.events import connect, require_connected
from persistent_engine.compile.knobs import Granularity, Knobs
from persistent_engine.compile.lower import lower, require_lowered
from persistent_engine.compile.pages import PAGE_BYTES, assign_pages
from persistent_engine.compile.place import place, require_placed
from persistent_engine.compile.profile import DeviceProfile, profile_of, this_cpu
from persistent_engine.compile.prune import prune
from persistent_engine.compile.show import PASSES, Compiled, show_pass
from persistent_engine.compile.tile import require_tiled, tile
from persistent_engine.devices import DeviceSheet
from persistent_engine.models import ModelFacts
from persistent_engine.plan import BufferKind, Dtype, Plan
from speedtier.errors import PlanError

__all__ = ["PASSES", "POLICIES", "DeviceProfile", "Granularity", "Knobs", "compile_plan", "profile_of", "this_cpu"]


def _check(facts: ModelFacts, capacity: int, policy: str, knobs: Knobs) -> None:
    if policy not in POLICIES:
        raise PlanError(f"policy is {policy!r}; choose one of {', '.join(POLICIES)}")
    if not 1 <= capacity <= facts.max_position:
        raise PlanError(
            f"capacity is {capacity}; choose 1 to the model's max_position_embeddings, {facts.max_position}"
        )
    if knobs.tiles_per_worker < 1 or knobs.parts < 0 or knobs.draft_depth < 0:
        raise PlanError(f"knobs are {knobs}; tiles_per_worker is at least 1, parts and draft_depth are at least 0")


def compile_plan(
    facts: ModelFacts,
    machine: DeviceProfile | DeviceSheet,
    *,
    capacity: int,
    tile_tokens: int = 128,
    state_dtype: Dtype | None = None,
    policy: str = "list",
    tiles_per_worker: int = 1,
    knobs: Knobs | None = None,
    dump: Callable[[str, str], None] | None = None,
) -> Plan:
    """A plan for one decode step.

    capacity: most tokens of state. tile_tokens: tokens of a transposed key tile (the prefill server's block size; GQA
    only). state_dtype: of the slot; default the checkpoint's. tiles_per_worker: as in `knobs`, which it is put into
    when that is not given. dump(pass, text): called after each pass of PASSES.
    Raises: PlanError for an unknown policy, a knob out of its range, or a capacity that the model's positions do not
    reach.
    """
    knobs = knobs or Knobs(tiles_per_worker=tiles_per_worker)
    profile = profile_of(machine) if isinstance(machine, DeviceSheet) else machine
    _check(facts, capacity, policy, knobs)
    made = Compiled(lower(facts, profile, capacity, tile_tokens, state_dtype, knobs))
    _run(made, profile, policy, knobs, lambda name: dump(name, show_pass(name, made)) if dump else None)
    limits = {"capacity": capacity, "vocabulary": facts.vocabulary, "tile_tokens": tile_tokens, "batch": knobs.batch}
    limits["draft_depth"] = knobs.draft_depth
    if facts.indexer is not None:
        limits["index_topk"] = facts.indexer.top_k
    if profile.lanes > 1:
        limits["page_bytes"] = PAGE_BYTES
    named = (made.graph.model, profile.name, made.graph.capacity)
    made.plan = encode_tables(
        made.placement, made.pieces, made.buffers, made.assignment, made.schedule, made.pages, named, limits
    )
    if dump is not None:
        dump("encode", show_pass("encode", made))
    return made.plan


def _run(made: Compiled, profile: DeviceProfile, policy: str, knobs: Knobs, done: Callable[[str], None]) -> None:
    """Passes between the graph and the tables, each held to its output spec."""
    graph = made.graph
    require_lowered(graph)
    done("lower")
    made.placement = place(graph, profile)
    require_placed(graph, made.placement)
    done("place")
    made.pieces = tile(graph, made.placement, profile, knobs)
    require_tiled(graph, made.placement, made.pieces)
    done("tile")
    made.pieces, made.buffers = localise(graph, made.pieces, profile)
    require_local(made.pieces, made.buffers)
    done("comm")
    states = frozenset(name for name, buffer in graph.buffers.items() if buffer.kind == BufferKind.STATE)
    made.producers = depend(made.pieces, frozenset() if profile.replicated else states)
    require_dependent(made.pieces, made.producers)
    done("depend")
    made.assignment = assign(made.pieces, made.producers, profile, policy)
    require_assigned(made.pieces, made.producers, made.assignment)
    done("assign")
    made.schedule = connect(made.pieces, made.producers, made.assignment, knobs.events)
    require_connected(made.producers, made.assignment, made.schedule)
    done("events")
    made.schedule = prune(made.assignment, made.schedule)
    done("prune")
    if profile.lanes > 1:  # a CPU gives every buffer memory of its own
        made.pages = assign_pages(made.pieces, made.buffers, made.assignment, made.schedule)
    done("pages")
