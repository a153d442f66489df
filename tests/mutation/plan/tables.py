"""A plan whose tables can be changed, to make plans that are wrong in one place."""

from typing import Any

import msgspec
import numpy as np

from persistent_engine.plan import TABLES, Arg, Event, Plan, Task, Worker, encode

__all__ = ["Tables"]


class Tables:
    """Copies of a plan's tables and its manifest."""

    def __init__(self, plan: Plan) -> None:
        self.manifest = plan.manifest
        for name in TABLES:
            setattr(self, name, np.array(getattr(plan, name)))

    devices: Any
    buffers: Any
    events: Any
    workers: Any
    tasks: Any
    waits: Any
    signals: Any
    args: Any
    params: Any

    def plan(self) -> Plan:
        """The plan that these are the tables of."""
        return Plan(self.manifest, **{name: getattr(self, name) for name in TABLES})

    def file(self) -> bytes:
        """The plan file, with the right hash."""
        return encode(self.plan())

    def change(self, **fields: Any) -> None:
        """Other fields of the manifest."""
        self.manifest = msgspec.structs.replace(self.manifest, **fields)

    def name(self, number: int) -> str:
        return self.manifest.names[number]

    def task(self, label: str, worker: int | None = None) -> int:
        """The first task with a label (of a worker)."""
        return next(
            row
            for row, task in enumerate(self.tasks)
            if self.name(task[Task.LABEL]) == label and worker in (None, task[Task.WORKER])
        )

    def running(self, operator: str, place: int = 0) -> int:
        """A task of an operator, the first one first."""
        number = self.manifest.operators.index(operator)
        return int(np.flatnonzero(self.tasks[:, Task.OPERATOR] == number)[place])

    def waiting(self, place: int = 0) -> int:
        """A task that waits, the first one first."""
        return int(np.flatnonzero(self.tasks[:, Task.WAIT_COUNT] > 0)[place])

    def written(self, task: int) -> int:
        """Row of the last argument of a task, which operators here write."""
        return int(self.tasks[task, Task.ARG_FIRST] + self.tasks[task, Task.ARG_COUNT] - 1)

    def buffer(self, name: str) -> int:
        return next(row for row, buffer in enumerate(self.buffers) if self.name(buffer[4]) == name)

    def arg(self, label: str, place: int, worker: int | None = None) -> int:
        """Row of a task's argument."""
        return int(self.tasks[self.task(label, worker), Task.ARG_FIRST]) + place

    def swap(self, one: int, other: int) -> None:
        """Exchange two tasks of one queue."""
        self.tasks[[one, other]] = self.tasks[[other, one]]

    def new_event(self, tasks: list[int]) -> int:
        """An event that these tasks signal as well."""
        self.events = np.vstack([self.events, self.events[:1]])
        self.events[-1, Event.PRODUCERS] = len(tasks)
        for task in tasks:
            self._extend("signals", task, Task.SIGNAL_FIRST, Task.SIGNAL_COUNT, (len(self.events) - 1,))
        return len(self.events) - 1

    def wait(self, task: int, event: int, lag: int = 0) -> None:
        """One more wait."""
        row = (event, self.events[event, Event.PRODUCERS], lag)
        self._extend("waits", task, Task.WAIT_FIRST, Task.WAIT_COUNT, row)

    def _extend(self, table: str, task: int, first: int, count: int, row: tuple[int, ...]) -> None:
        """Move a task's range to the end of its table, one row longer. What it leaves behind goes to a later insert."""
        rows = getattr(self, table)
        start, length = int(self.tasks[task, first]), int(self.tasks[task, count])
        kept = rows[start : start + length]
        others = np.concatenate([rows[:start], rows[start + length :]])
        self.tasks[self.tasks[:, first] > start, first] -= length
        self.tasks[task, first], self.tasks[task, count] = len(others), length + 1
        setattr(self, table, np.concatenate([others, kept, np.array([row], dtype=rows.dtype)]))

    def append(self, worker: int, like: str, args: list[tuple[int, ...]] | None = None) -> int:
        """A task at the end of a queue, like another one but for its arguments, without waits and signals."""
        row = self.tasks[self.task(like)].copy()
        if args is None:
            args = [tuple(arg) for arg in self.args[row[Task.ARG_FIRST] :][: row[Task.ARG_COUNT]]]
        place = int(self.workers[worker, Worker.TASK_FIRST] + self.workers[worker, Worker.TASK_COUNT])
        row[[Task.WAIT_FIRST, Task.WAIT_COUNT, Task.SIGNAL_FIRST, Task.SIGNAL_COUNT]] = 0
        row[Task.WORKER], row[Task.DEVICE] = worker, self.workers[worker, Worker.DEVICE]
        row[Task.ARG_FIRST], row[Task.ARG_COUNT] = len(self.args), len(args)
        self.args = np.vstack([self.args, np.array(args, dtype=self.args.dtype)])
        self.tasks = np.insert(self.tasks, place, row, axis=0)
        self.workers[worker, Worker.TASK_COUNT] += 1
        self.workers[worker + 1 :, Worker.TASK_FIRST] += 1  # queues lie in the order of workers
        return place

    def new_buffer(self, like: str) -> int:
        """A buffer like another one."""
        self.buffers = np.vstack([self.buffers, self.buffers[self.buffer(like)]])
        return len(self.buffers) - 1

    def drop_waits(self, task: int) -> None:
        """Forget what a task waits for (rows and all)."""
        first, count = self.tasks[task, Task.WAIT_FIRST], self.tasks[task, Task.WAIT_COUNT]
        self.waits = np.delete(self.waits, slice(first, first + count), axis=0)
        self.tasks[self.tasks[:, Task.WAIT_FIRST] > first, Task.WAIT_FIRST] -= count
        self.tasks[task, Task.WAIT_COUNT] = 0

    def box(self, buffer: int) -> tuple[int, int, int, int]:
        """All of a buffer."""
        return 0, int(self.buffers[buffer, 2]), 0, int(self.buffers[buffer, 3])

    def whole(self, buffer: int, access: int) -> tuple[int, ...]:
        """An argument that is all of a buffer."""
        row = [0] * Arg.WIDTH
        row[Arg.BUFFER], row[Arg.ACCESS] = buffer, access
        row[Arg.ROW_FIRST :] = self.box(buffer)
        return tuple(row)
