"""Pass `assign`: a worker for each task, and the order of tasks in the queues.

Output spec (`require_assigned`): every task has one worker of its device and of a warp role that may run it; tasks of
the leading kind are on worker 0, which leads the steps; queues are parts of one order in which producers come first, so
no two queues can wait for each other.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable

from persistent_engine.compile.place import LEADERS
from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.compile.tile import Piece
from persistent_engine.manifest import OPERATORS, number
from persistent_engine.plan import WarpRole
from speedtier.errors import PlanError

__all__ = ["POLICIES", "Assignment", "Policy", "WorkerSpec", "assign", "require_assigned"]

Producers = list[tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """A resident worker: its device, its warp role, its lanes."""

    device: int
    role: WarpRole
    lanes: int


@dataclasses.dataclass(frozen=True)
class Assignment:
    """workers. owner: of each task. order: tasks as queues have them, all queues merged."""

    workers: list[WorkerSpec]
    owner: list[int]
    order: list[int]


@dataclasses.dataclass(frozen=True)
class _Case:
    """What a policy decides on. choices: workers that may run each task, never none."""

    pieces: list[Piece]
    producers: Producers
    choices: list[tuple[int, ...]]
    workers: int
    profile: DeviceProfile


Policy = Callable[[_Case], list[int]]


def _list(case: _Case) -> list[int]:
    """Each task to the worker that would finish it first; ties to the lowest."""
    free, finish, owner, profile = [0.0] * case.workers, list[float](), list[int](), case.profile
    for piece, producers, choices in zip(case.pieces, case.producers, case.choices, strict=True):
        duration = piece.cost / profile.bytes_per_s
        best = (float("inf"), 0)
        for worker in choices:
            ready = max((finish[p] + (profile.sync_s if owner[p] != worker else 0.0) for p in producers), default=0.0)
            best = min(best, (max(free[worker], ready) + duration, worker))
        finish.append(best[0])
        free[best[1]] = best[0]
        owner.append(best[1])
    return owner


def _dealt(case: _Case, turn: Callable[[int, int], int]) -> list[int]:
    """The n-th task of those with the same choice of k workers to choice turn(n, k)."""
    seen: dict[tuple[int, ...], int] = defaultdict(int)
    owner = []
    for choices in case.choices:
        owner.append(choices[turn(seen[choices], len(choices))])
        seen[choices] += 1
    return owner


def _round_robin(case: _Case) -> list[int]:
    """In turn."""
    return _dealt(case, lambda n, k: n % k)


def _zigzag(case: _Case) -> list[int]:
    """In turn there and back: a worker that got the last of one round gets the first of the next."""
    return _dealt(case, lambda n, k: n % k if n // k % 2 == 0 else k - 1 - n % k)


def _pinned(case: _Case) -> list[int]:
    """By place in the operator: the same rows of equal operators are always one worker's."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for piece in case.pieces:
        counts[piece.node, piece.device] += 1
    seen: dict[tuple[int, int], int] = defaultdict(int)
    owner = []
    for piece, choices in zip(case.pieces, case.choices, strict=True):
        key = piece.node, piece.device
        owner.append(choices[seen[key] * len(choices) // counts[key]])
        seen[key] += 1
    return owner


def levels(pieces: list[Piece], producers: Producers) -> list[int]:
    """How many operators (with copies) have to be done before each task's: the same for all tasks of one."""
    of_node: dict[int, int] = defaultdict(int)
    for _ in range(2):  # tasks of an operator stand together, so one pass settles it; the second is for early ones
        for piece, needed in zip(pieces, producers, strict=True):
            for producer in needed:
                of_node[piece.node] = max(of_node[piece.node], of_node[pieces[producer].node] + 1)
    return [of_node[piece.node] for piece in pieces]


def _wave(case: _Case) -> list[int]:
    """Level by level, the largest task of a level first, each to the worker that has least of the level."""
    level = levels(case.pieces, case.producers)
    load: dict[tuple[int, int], float] = defaultdict(float)
    owner = [0] * len(case.pieces)
    for index in sorted(range(len(owner)), key=lambda i: (level[i], -case.pieces[i].cost, i)):
        owner[index] = min(case.choices[index], key=lambda worker: (load[level[index], worker], worker))
        load[level[index], owner[index]] += case.pieces[index].cost + 1
    return owner


POLICIES: dict[str, Policy] = {
    "list": _list,
    "round_robin": _round_robin,
    "zigzag": _zigzag,
    "wave": _wave,
    "pinned": _pinned,
}
"""Placement policies by name."""


def _roles(piece: Piece) -> tuple[WarpRole, ...]:
    allowed = OPERATORS[number(piece.operator)].warp_roles
    return tuple(role for role in (WarpRole.COMPUTE, WarpRole.SELECT, WarpRole.COMM) if role in allowed)[:1]


def _specs(pieces: list[Piece], profile: DeviceProfile) -> list[WorkerSpec]:
    if profile.lanes == 1:
        return [WorkerSpec(d, WarpRole.ALL, 1) for d in range(profile.devices) for _ in range(profile.workers)]
    needed = sorted({(piece.device, role) for piece in pieces for role in _roles(piece)})
    return [WorkerSpec(device, role, profile.lanes) for device, role in needed]


def _is_leading(piece: Piece) -> bool:
    return piece.operator in LEADERS - {"embed", "embed_drafted"}


def assign(pieces: list[Piece], producers: Producers, profile: DeviceProfile, policy: str) -> Assignment:
    """Workers and queues. Workers that would have no task are left out, but for worker 0."""
    specs = _specs(pieces, profile)
    choices = []
    for piece in pieces:
        roles = (WarpRole.ALL, *_roles(piece))
        fit = tuple(w for w, spec in enumerate(specs) if spec.device == piece.device and spec.role in roles)
        choices.append((0,) if _is_leading(piece) else fit)
    owner = POLICIES[policy](_Case(pieces, producers, choices, len(specs), profile))
    order = list(range(len(pieces)))
    if policy == "wave":
        level = levels(pieces, producers)
        order.sort(key=lambda i: (level[i], i))
    used = sorted({0, *owner})
    numbers = {worker: place for place, worker in enumerate(used)}
    return Assignment([specs[worker] for worker in used], [numbers[worker] for worker in owner], order)


def require_assigned(pieces: list[Piece], producers: Producers, assignment: Assignment) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    rank = {task: place for place, task in enumerate(assignment.order)}
    for index, (piece, owner) in enumerate(zip(pieces, assignment.owner, strict=True)):
        spec = assignment.workers[owner]
        if spec.device != piece.device or spec.role not in (WarpRole.ALL, *_roles(piece)):
            raise PlanError(f"task {index} ({piece.label!r}) is on worker {owner}, {spec}, which may not run it")
        if _is_leading(piece) and owner != 0:
            raise PlanError(f"task {index} ({piece.label!r}) is on worker {owner}, wants 0, which leads")
        if any(rank[producer] >= rank[index] for producer in producers[index]):
            raise PlanError(f"task {index} ({piece.label!r}) comes before one that it needs")
