"""Pass `events`: counters that tasks wait on and signal.

Output spec (`require_connected`): a task runs only after all its producers: each is earlier in the same queue, or
signals an event that the task waits for. An event's producers per step equal the sum of its signals. A counter lies on
the device of those that wait for it: waiting reads near memory, signalling writes far.
"""

import dataclasses
from collections import defaultdict

from persistent_engine.compile.assign import Assignment
from persistent_engine.compile.knobs import Granularity
from persistent_engine.compile.tile import Piece
from speedtier.errors import PlanError

__all__ = ["Event", "Schedule", "connect", "require_connected"]


@dataclasses.dataclass(frozen=True)
class Event:
    """members: tasks that signal it, by the tiles of each. device: whose memory has the counter."""

    name: str
    members: tuple[int, ...]
    device: int


@dataclasses.dataclass(frozen=True)
class Schedule:
    """waits: per task, event numbers. signals: per task, event numbers."""

    events: list[Event]
    waits: list[list[int]]
    signals: list[list[int]]


Group = tuple[int, ...]


def _groups(pieces: list[Piece], producers: list[tuple[int, ...]], granularity: Granularity) -> dict[int, Group]:
    """For each task those that it shares an event with: of one operator, on one device."""
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, piece in enumerate(pieces):
        members[piece.node, piece.device].append(index)
    alone: set[tuple[int, int]] = set()
    if granularity == "tile":
        alone.update(members)
    elif granularity == "group":
        for needed in producers:
            seen: dict[tuple[int, int], int] = defaultdict(int)
            for producer in needed:
                seen[pieces[producer].node, pieces[producer].device] += 1
            alone.update(key for key, count in seen.items() if count < len(members[key]))
    return {task: (task,) if key in alone else tuple(tasks) for key, tasks in members.items() for task in tasks}


def connect(
    pieces: list[Piece], producers: list[tuple[int, ...]], assignment: Assignment, granularity: Granularity
) -> Schedule:
    """Events, waits and signals for tasks that have workers; nothing is left out but what is in the same queue."""
    group_of, owner = _groups(pieces, producers, granularity), assignment.owner
    numbers: dict[tuple[Group, int], int] = {}
    events: list[Event] = []
    waits: list[list[int]] = [[] for _ in pieces]
    signals: list[list[int]] = [[] for _ in pieces]
    for task in assignment.order:
        worker, device = owner[task], pieces[task].device
        for group in dict.fromkeys(group_of[producer] for producer in producers[task]):
            if all(owner[member] == worker for member in group):
                continue
            key = group, device
            if key not in numbers:
                numbers[key] = len(events)
                events.append(Event(pieces[group[0]].label, group, device))
                for member in group:
                    signals[member].append(numbers[key])
            waits[task].append(numbers[key])
    return Schedule(events, waits, signals)


def require_connected(producers: list[tuple[int, ...]], assignment: Assignment, schedule: Schedule) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    for number, event in enumerate(schedule.events):
        if any(number not in schedule.signals[member] for member in event.members):
            raise PlanError(f"event {number} ({event.name!r}) is not signalled by all of {event.members}")
    if sum(map(len, schedule.signals)) != sum(len(event.members) for event in schedule.events):
        raise PlanError("a task signals an event that does not count it")
    for task, needed in enumerate(producers):
        known = {member for event in schedule.waits[task] for member in schedule.events[event].members}
        loose = [p for p in needed if p not in known and assignment.owner[p] != assignment.owner[task]]
        if loose:
            raise PlanError(f"task {task} does not wait for its producers {loose}")
