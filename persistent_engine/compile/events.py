"""Pass `events`: counters that tasks wait on and signal; waits that program order implies are left out.

Output spec: a task runs only after all its producers: each is earlier in the same queue, or signals an event that the
queue has waited for in full. An event's producers per step equal the sum of its signals.
"""

import dataclasses
from collections import defaultdict

from persistent_engine.compile.tile import Piece

__all__ = ["Schedule", "connect"]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """events: (name, signals per step). waits: per task, event numbers. signals: per task, event numbers."""

    workers: list[int]
    events: list[tuple[str, int]]
    waits: list[list[int]]
    signals: list[list[int]]


def _groups(pieces: list[Piece], producers: list[tuple[int, ...]]) -> dict[int, list[tuple[int, ...]]]:
    """Node -> groups of its tasks that share an event: all of them, or each alone when a consumer needs only some."""
    by_node: dict[int, list[int]] = defaultdict(list)
    for index, piece in enumerate(pieces):
        by_node[piece.node].append(index)
    partial: set[int] = set()
    for needed in producers:
        seen: dict[int, int] = defaultdict(int)
        for producer in needed:
            seen[pieces[producer].node] += 1
        partial.update(node for node, count in seen.items() if count < len(by_node[node]))
    return {node: [(i,) for i in tasks] if node in partial else [tuple(tasks)] for node, tasks in by_node.items()}


def connect(pieces: list[Piece], producers: list[tuple[int, ...]], workers: list[int], labels: list[str]) -> Schedule:
    """Events, waits and signals for tasks that are placed. labels: a name for each task's node."""
    group_of = {task: group for groups in _groups(pieces, producers).values() for group in groups for task in group}
    numbers: dict[tuple[int, ...], int] = {}
    events: list[tuple[str, int]] = []
    waits: list[list[int]] = [[] for _ in pieces]
    signals: list[list[int]] = [[] for _ in pieces]
    waited: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for task, needed in enumerate(producers):
        worker = workers[task]
        for group in dict.fromkeys(group_of[producer] for producer in needed):
            if group in waited[worker] or all(workers[member] == worker for member in group):
                continue
            waited[worker].add(group)
            if group not in numbers:
                numbers[group] = len(events)
                events.append((labels[group[0]], len(group)))
                for member in group:
                    signals[member].append(numbers[group])
            waits[task].append(numbers[group])
    return Schedule(workers, events, waits, signals)
