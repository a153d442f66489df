"""Pass `prune`: leave out waits that queue order and other waits imply, and events that nobody waits for then.

Output spec (`require_pruned`): the order of tasks is what it was; no wait can be left out without changing it, among
those of one task taken from the latest to the earliest.

Order is kept as vector clocks: for each task, how far each queue is when it may run.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from persistent_engine.compile.assign import Assignment
from persistent_engine.compile.events import Schedule
from speedtier.errors import PlanError

__all__ = ["Clocks", "clocks", "prune", "require_pruned"]

Clocks = NDArray[np.int32]
"""[tasks, workers]: how many tasks of each queue are done when the task is, itself included."""


def _places(assignment: Assignment) -> list[int]:
    """Of each task in its queue, from 1."""
    places, counts = [0] * len(assignment.owner), [0] * len(assignment.workers)
    for task in assignment.order:
        counts[assignment.owner[task]] += 1
        places[task] = counts[assignment.owner[task]]
    return places


def _walk(assignment: Assignment, schedule: Schedule, waits: list[list[int]] | None) -> Clocks:
    """Clocks of all tasks; into `waits` those that each task needs, if it is given."""
    places, workers = _places(assignment), len(assignment.workers)
    rank = {task: at for at, task in enumerate(assignment.order)}
    after = np.zeros((len(places), workers), np.int32)
    ends = np.zeros((workers, workers), np.int32)
    reached: dict[int, Clocks] = {}
    latest = [max((rank[member] for member in event.members), default=-1) for event in schedule.events]
    for task in assignment.order:
        worker = assignment.owner[task]
        row = ends[worker].copy()
        for event in sorted(schedule.waits[task], key=lambda number: (-latest[number], number)):
            if event not in reached:
                reached[event] = after[list(schedule.events[event].members)].max(axis=0)
            if waits is not None and not (reached[event] > row).any():
                continue
            np.maximum(row, reached[event], out=row)
            if waits is not None:
                waits[task].append(event)
        row[worker] = places[task]
        after[task] = ends[worker] = row
    return after


def clocks(assignment: Assignment, schedule: Schedule) -> Clocks:
    """How far each queue is when a task is done."""
    return _walk(assignment, schedule, None)


def prune(assignment: Assignment, schedule: Schedule) -> Schedule:
    """The schedule without what is implied; events are numbered anew, in their order."""
    waits: list[list[int]] = [[] for _ in schedule.waits]
    _walk(assignment, schedule, waits)
    kept = sorted({event for row in waits for event in row})
    numbers = {event: place for place, event in enumerate(kept)}
    return dataclasses.replace(
        schedule,
        events=[schedule.events[event] for event in kept],
        waits=[sorted(numbers[event] for event in row) for row in waits],
        signals=[[numbers[event] for event in row if event in numbers] for row in schedule.signals],
    )


def require_pruned(assignment: Assignment, before: Schedule, after: Schedule) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    if not np.array_equal(clocks(assignment, before), clocks(assignment, after)):
        raise PlanError("leaving waits out changed the order of tasks")
    if prune(assignment, after) != after:
        raise PlanError("a wait is left that others imply")
