"""Every interleaving of a small plan, tried: the independent judge of what the checker says. Shares no code with it.

A task is two moves, begin and end, so that two tasks can be seen to run at once. All that happens follows from how far
each worker is, so a state is one number a worker, and a plan of 8 tasks over 3 epochs has a few thousand of them.
"""

import dataclasses
from collections import defaultdict
from itertools import combinations

__all__ = ["Buffer", "Small", "Step", "explore"]

Touch = tuple[int, int, int, bool]
"""Buffer, first and last element (half open), whether it is written."""


@dataclasses.dataclass
class Step:
    """A task. waits: (event, lag). registers: it reads a step register."""

    waits: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    signals: list[int] = dataclasses.field(default_factory=list)
    touches: list[Touch] = dataclasses.field(default_factory=list)
    registers: bool = False
    tiles: int = 1


@dataclasses.dataclass
class Buffer:
    """Elements; whether it keeps its content between epochs; pages [first, last)."""

    size: int
    state: bool = False
    pages: tuple[int, int] = (0, 0)


@dataclasses.dataclass
class Small:
    """A plan of few tasks. queues: task numbers by worker; worker 0 leads."""

    queues: list[list[int]]
    steps: list[Step]
    buffers: list[Buffer]
    events: int


class _World:
    """A plan with its counts, and what was seen of it."""

    def __init__(self, plan: Small, epochs: int) -> None:
        self.plan, self.epochs = plan, epochs
        self.place = {task: (w, i) for w, queue in enumerate(plan.queues) for i, task in enumerate(queue)}
        self.producers: dict[int, list[int]] = defaultdict(list)
        for task, step in enumerate(plan.steps):
            for event in step.signals:
                self.producers[event].append(task)
        self.count = {event: sum(plan.steps[t].tiles for t in self.producers[event]) for event in range(plan.events)}
        self.clashes = [pair for pair in combinations(range(len(plan.steps)), 2) if self._clash(*pair)]
        self.reads = self._reads()
        self.paged = self._paged()
        self.seen: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)

    def _shared(self, one: int, other: int) -> bool:
        (a, b), (c, d) = self.plan.buffers[one].pages, self.plan.buffers[other].pages
        return one != other and a < d and c < b

    def _clash(self, one: int, other: int) -> bool:
        """Whether two tasks touch the same memory and one writes it."""
        for b, lo, hi, w in self.plan.steps[one].touches:
            for c, low, high, v in self.plan.steps[other].touches:
                if (w or v) and ((b == c and lo < high and low < hi) or self._shared(b, c)):
                    return True
        return False

    def _reads(self) -> list[tuple[int, int]]:
        """(reader, writer) of activations; writer -1 for an element that nobody writes."""
        found = set()
        for reader, step in enumerate(self.plan.steps):
            for buffer, lo, hi, written in step.touches:
                if written or self.plan.buffers[buffer].state:
                    continue
                for element in range(lo, hi):
                    writers = [
                        task
                        for task, other in enumerate(self.plan.steps)
                        for b, low, high, w in other.touches
                        if w and b == buffer and low <= element < high
                    ]
                    found.update((reader, writer) for writer in writers or [-1])
        return sorted(found)

    def _paged(self) -> list[tuple[int, list[int]]]:
        """(writer of a buffer, tasks that touch another one on its pages)."""
        users: dict[int, set[int]] = defaultdict(set)
        for task, step in enumerate(self.plan.steps):
            for buffer, *_ in step.touches:
                users[buffer].add(task)
        return [
            (task, sorted(users[other]))
            for task, step in enumerate(self.plan.steps)
            for buffer, _, _, written in step.touches
            for other in list(users)
            if written and self._shared(buffer, other)
        ]

    def times(self, task: int, state: tuple[int, ...]) -> tuple[int, int]:
        """How many epochs of a task have begun, and ended."""
        worker, index = self.place[task]
        length = len(self.plan.queues[worker])
        begun, ended = (state[worker] + 1) // 2, state[worker] // 2
        return max(0, (begun - index + length - 1) // length), max(0, (ended - index + length - 1) // length)

    def moves(self, state: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
        """States after each move that is possible, and what is wrong with the move, if anything."""
        result = []
        for worker, queue in enumerate(self.plan.queues):
            if state[worker] == 2 * len(queue) * self.epochs:
                continue
            wrong: str | None = ""
            if state[worker] % 2 == 0:
                epoch, index = divmod(state[worker] // 2, len(queue))
                wrong = self._may_begin(queue[index], epoch + 1, index, state)
            if wrong is not None:
                result.append(((*state[:worker], state[worker] + 1, *state[worker + 1 :]), wrong))
        return result

    def _may_begin(self, task: int, epoch: int, index: int, state: tuple[int, ...]) -> str | None:
        """None when the task has to wait; a text when it may begin too early."""
        if index == 0 and state[0] < 2 * len(self.plan.queues[0]) * (epoch - 1):
            return None
        wrong = ""
        for event, lag in self.plan.steps[task].waits:
            signals = sum(self.plan.steps[t].tiles * self.times(t, state)[1] for t in self.producers[event])
            if signals < max(self.count[event], 1) * (epoch - lag):
                return None
            if any(self.times(t, state)[1] < epoch - lag for t in self.producers[event]):
                wrong = f"task {task} goes on without all producers of event {event}"
        return wrong

    def look(self, state: tuple[int, ...]) -> str:
        """What is wrong in a state, "" for nothing."""
        times = [self.times(task, state) for task in range(len(self.plan.steps))]
        for one, other in self.clashes:
            (begun, ended), (other_begun, other_ended) = times[one], times[other]
            if begun > ended and other_begun > other_ended:
                return f"tasks {one} and {other} touch the same memory at once"
            self.seen[one, other].add((ended, other_begun))
            self.seen[other, one].add((other_ended, begun))
        for reader, writer in self.reads:
            if times[reader][0] > times[reader][1] and (
                writer < 0 or times[writer] != (times[reader][0], times[reader][0])
            ):
                return f"task {reader} reads what task {writer} wrote in another epoch, or nobody"
        for writer, users in self.paged:
            if times[writer][0] > times[writer][1] and min(times[u][1] for u in users) < max(
                times[u][0] for u in users
            ):
                return f"task {writer} writes to the pages of a buffer that is in use"
        for task, step in enumerate(self.plan.steps):
            uses = step.registers or any(self.plan.buffers[touch[0]].state for touch in step.touches)
            length = len(self.plan.queues[0])
            led = state[0] // 2 // length if length else self.epochs
            if uses and times[task][1] < led:
                return f"task {task} still runs when the leader's epoch has ended"
        return ""

    def both_orders(self) -> str:
        """Whether two runs of clashing tasks were seen in either order."""
        for one, other in self.clashes:
            for epoch in range(1, self.epochs + 1):
                for other_epoch in range(1, self.epochs + 1):
                    there = any(e >= epoch and b < other_epoch for e, b in self.seen[one, other])
                    back = any(e >= other_epoch and b < epoch for e, b in self.seen[other, one])
                    if there and back:
                        return f"tasks {one} and {other} touch the same memory in either order"
        return ""


def explore(plan: Small, epochs: int = 3) -> str:
    """What can go wrong in the first epochs of a plan, "" when nothing can: every interleaving is tried."""
    world = _World(plan, epochs)
    start = tuple(0 for _ in plan.queues)
    end = tuple(2 * len(queue) * epochs for queue in plan.queues)
    open_, known = [start], {start}
    while open_:
        state = open_.pop()
        wrong = world.look(state)
        moves = world.moves(state)
        if not moves and state != end:
            wrong = "deadlock"
        wrong = wrong or next((text for _, text in moves if text), "")
        if wrong:
            return wrong
        for after, _ in moves:
            if after not in known:
                known.add(after)
                open_.append(after)
    return world.both_orders()
