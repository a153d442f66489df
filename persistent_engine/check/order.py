"""Order: which tasks are done before which, within an epoch and from one epoch to the next.

Queues are chains, so "all that is done before task t" is one number a chain: the place of the last one of that chain
(a vector clock). Two tables [tasks, chains] of such numbers answer every question with one comparison; they grow with
tasks x chains, never with pairs of tasks.

Invariant: exactly the transitive closure of queue order, waits (all producers, shifted by lag) and the step gate.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["Order"]

Ints = NDArray[np.int64]
Clocks = NDArray[np.int32]


class Order:
    """Order of `tasks` tasks in `queues` [workers, (first, count)].

    waits: [n, (task, event, lag)]. signals: [n, (task, event)].

    cycle: tasks that wait for each other in a ring, empty when the plan can run; `before` and `follows` need it empty.
    chain, place: [tasks] the queue of a task and its place there. sequence: tasks in an order in which they can run.
    """

    def __init__(self, queues: Ints, tasks: int, events: int, waits: Ints, signals: Ints) -> None:
        self.chain, self.place = np.zeros(tasks, dtype=np.int64), np.zeros(tasks, dtype=np.int64)
        for worker, (first, count) in enumerate(queues):
            self.chain[first : first + count] = worker
            self.place[first : first + count] = np.arange(count)
        self._queues = [(int(first), int(first + count)) for first, count in queues]
        self._fresh = _grouped(tasks, waits[waits[:, 2] == 0])
        self._credits = _grouped(tasks, waits[waits[:, 2] != 0])
        self._signals = _grouped(tasks, signals)
        self._producers = _grouped(events, signals[:, ::-1])
        self._events = events
        self.sequence, self.cycle = self._run()
        self._now: Clocks = np.zeros((0, len(queues)), dtype=np.int32)
        self._next = self._now
        if not self.cycle:
            self._now, self._next = self._clocks()

    def _run(self) -> tuple[list[int], list[int]]:
        """Run the queues once; gives the tasks in that order and, when they get stuck, a ring of waiting tasks."""
        missing = [len(producers) for producers in self._producers]
        head = [first for first, _ in self._queues]
        blocked: list[list[int]] = [[] for _ in range(self._events)]
        ready, sequence = deque(range(len(head))), list[int]()
        while ready:
            worker = ready.popleft()
            last = self._queues[worker][1]
            while head[worker] < last:
                task = head[worker]
                event = next((event for event in self._fresh[task] if missing[event]), None)
                if event is not None:
                    blocked[event].append(worker)
                    break
                sequence.append(task)
                head[worker] += 1
                for event in self._signals[task]:
                    missing[event] -= 1
                    if not missing[event]:
                        ready.extend(blocked[event])
                        blocked[event] = []
        stuck = [worker for worker, (_, last) in enumerate(self._queues) if head[worker] < last]
        return sequence, self._ring(stuck, head, missing) if stuck else []

    def _ring(self, stuck: list[int], head: list[int], missing: list[int]) -> list[int]:
        """A ring among the first tasks of stuck queues: each waits for one that comes at or after the next."""
        seen: list[int] = []
        worker = stuck[0]
        while worker not in seen:
            seen.append(worker)
            event = next(event for event in self._fresh[head[worker]] if missing[event])
            late = next(p for p in self._producers[event] if p >= head[int(self.chain[p])])
            worker = int(self.chain[late])
        return [head[worker] for worker in seen[seen.index(worker) :]]

    def _clocks(self) -> tuple[Clocks, Clocks]:
        """[tasks, chains] twice: the last of each chain that is done when a task is, itself included: of the task's
        own epoch, and of the epoch before."""
        chains, tasks = len(self._queues), len(self.chain)
        now, events_now = np.full((tasks, chains), -1, np.int32), np.full((self._events, chains), -1, np.int32)
        next_, events_next = now.copy(), events_now.copy()
        place, chain = self.place.tolist(), self.chain.tolist()
        for task in self.sequence:
            row = now[task]
            if place[task]:
                row[:] = now[task - 1]
            for event in self._fresh[task]:
                np.maximum(row, events_now[event], out=row)
            row[chain[task]] = place[task]
            for event in self._signals[task]:
                np.maximum(events_now[event], row, out=events_now[event])
        ends = [now[last - 1] if last > first else None for first, last in self._queues]
        for task in self.sequence:
            row = next_[task]
            if place[task]:
                row[:] = next_[task - 1]
            else:
                for end in (ends[chain[task]], ends[0]):
                    if end is not None:
                        np.maximum(row, end, out=row)
            for event in self._fresh[task]:
                np.maximum(row, events_next[event], out=row)
            for event in self._credits[task]:
                np.maximum(row, events_now[event], out=row)
            for event in self._signals[task]:
                np.maximum(events_next[event], row, out=events_next[event])
        return now, next_

    def before(self, first: Ints, second: Ints) -> NDArray[np.bool_]:
        """Whether each of `first` is done before each of `second` begins, in the same epoch."""
        return np.asarray((self._now[second, self.chain[first]] >= self.place[first]) & (first != second))

    def follows(self, first: Ints, second: Ints) -> NDArray[np.bool_]:
        """Whether each of `first` is done before each of `second` of the next epoch begins."""
        return np.asarray(self._next[second, self.chain[first]] >= self.place[first])

    def arrived(self, first: Ints, task: int, lag: int) -> NDArray[np.bool_]:
        """Whether each of `first`, `lag` epochs before, is done when the queue comes to `task`, before it waits."""
        if self.place[task]:
            row = (self._next if lag else self._now)[task - 1]
        elif lag:
            ends = [last - 1 for begin, last in (self._queues[self.chain[task]], self._queues[0]) if last > begin]
            row = self._now[ends].max(axis=0)
        else:
            return np.zeros(len(first), dtype=np.bool_)
        return np.asarray(row[self.chain[first]] >= self.place[first])

    def latest(self, tasks: Ints) -> Clocks:
        """[chains] the last place of `tasks` in each chain, -1 for none: "all of `tasks`", for `all_before`."""
        result = np.full(len(self._queues), -1, dtype=np.int32)
        np.maximum.at(result, self.chain[tasks], self.place[tasks].astype(np.int32))
        return result

    def all_before(self, latest: Clocks, second: Ints) -> NDArray[np.bool_]:
        """Whether all tasks that `latest` stands for are done before each of `second` begins, in the same epoch."""
        known = self._now[second]
        known[np.arange(len(second)), self.chain[second]] -= 1
        return np.asarray((known >= latest).all(axis=1))

    def all_known(self, latest: Clocks, second: Ints) -> NDArray[np.bool_]:
        """As `all_before`, where one of `second` counts as done before itself."""
        return np.asarray((self._now[second] >= latest).all(axis=1))

    def all_follow(self, latest: Clocks, second: Ints) -> NDArray[np.bool_]:
        """Whether all tasks that `latest` stands for are done before each of `second` of the next epoch begins."""
        return np.asarray((self._next[second] >= latest).all(axis=1))


def _grouped(size: int, pairs: Ints) -> list[list[int]]:
    """Column 1 of `pairs` by column 0, in the order given."""
    result: list[list[int]] = [[] for _ in range(size)]
    for key, value in zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True):
        result[key].append(value)
    return result
