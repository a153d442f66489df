"""View: a plan's tables in the shapes that rules ask for, each made when it is first asked for.

Invariant: nothing here trusts the plan beyond rule P1; what it allocates is linear in the size of the tables.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from persistent_engine.check.order import Order
from persistent_engine.check.report import Item, Kind
from persistent_engine.manifest import OPERATORS, Operator
from persistent_engine.manifest.signature import Argument
from persistent_engine.plan import (
    Access,
    Arg,
    BufferKind,
    BufferRow,
    Device,
    Event,
    Plan,
    Task,
    Wait,
    Worker,
)

if TYPE_CHECKING:
    from persistent_engine.check.hazards import Hazards

__all__ = ["DeviceLimits", "Ints", "View", "spread"]

Ints = NDArray[np.int64]


class DeviceLimits(Protocol):
    """What P3 asks of a machine: its name, how many devices it has, and lanes (multiprocessors) of each."""

    @property
    def name(self) -> str:
        """As profiles call it."""

    @property
    def devices(self) -> int:
        """How many there are."""

    @property
    def lanes(self) -> int:
        """Multiprocessors of one device; cores of a CPU."""


def spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Ranges [first, first + count) as (index of the range, member) pairs, range by range."""
    owner = np.repeat(np.arange(len(first)), count)
    start = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - start[owner] + first[owner]


class View:
    """A plan as the rules read it. Tables are int64, so that no sum or product of their numbers overflows."""

    def __init__(self, plan: Plan, limits: DeviceLimits | None = None) -> None:
        self.plan, self.limits = plan, limits
        self.devices, self.buffers, self.events, self.workers, self.tasks, self.waits, self.args = (
            table.astype(np.int64)
            for table in (plan.devices, plan.buffers, plan.events, plan.workers, plan.tasks, plan.waits, plan.args)
        )
        self.signals: Ints = plan.signals[:, 0].astype(np.int64)
        self.params = plan.params[:, 0]

    def name(self, number: Any) -> str:
        """A name of the manifest, "" when there is none with this number."""
        names = self.plan.manifest.names
        return names[int(number)] if 0 <= int(number) < len(names) else ""

    def item(self, kind: Kind, number: Any) -> Item:
        """A row as a witness."""
        tables: dict[str, tuple[Ints, int]] = {
            "buffer": (self.buffers, BufferRow.NAME),
            "device": (self.devices, Device.NAME),
            "event": (self.events, Event.NAME),
            "task": (self.tasks, Task.LABEL),
        }
        if kind not in tables:
            return Item(kind, int(number))
        table, column = tables[kind]
        return Item(kind, int(number), self.name(table[int(number), column]))

    def operator(self, task: Any) -> Operator:
        """What a task runs; P2 sees to it that the plan and this checker number operators alike."""
        return OPERATORS[int(self.tasks[int(task), Task.OPERATOR])]

    def operators(self, wanted: Any) -> NDArray[np.bool_]:
        """[tasks]: whether `wanted(operator)` holds for what the task runs."""
        return np.array([bool(wanted(operator)) for operator in OPERATORS])[self.tasks[:, Task.OPERATOR]]

    @cached_property
    def memory(self) -> Ints:
        """[buffers] the buffer itself, or the first of its name: state planes of one name are one plane of the slot,
        on whatever devices."""
        result = np.arange(len(self.buffers))
        planes: dict[int, int] = {}
        for buffer in np.flatnonzero(self.buffers[:, BufferRow.KIND] == BufferKind.STATE).tolist():
            result[buffer] = planes.setdefault(int(self.buffers[buffer, BufferRow.NAME]), buffer)
        return result

    @cached_property
    def arg_task(self) -> Ints:
        """[args] the task that an argument belongs to, -1 for none."""
        return self._owner(Task.ARG_FIRST, Task.ARG_COUNT, len(self.args))

    @cached_property
    def wait_task(self) -> Ints:
        """[waits] the task that waits, -1 for none."""
        return self._owner(Task.WAIT_FIRST, Task.WAIT_COUNT, len(self.waits))

    @cached_property
    def signal_task(self) -> Ints:
        """[signals] the task that signals, -1 for none."""
        return self._owner(Task.SIGNAL_FIRST, Task.SIGNAL_COUNT, len(self.signals))

    def _owner(self, first: int, count: int, size: int) -> Ints:
        result = np.full(size, -1, dtype=np.int64)
        owner, member = spread(self.tasks[:, first], self.tasks[:, count])
        result[member] = owner
        return result

    @cached_property
    def remote(self) -> NDArray[np.bool_]:
        """[args] whether the operator lets the argument lie on another device."""
        return self._declared(lambda argument: argument.remote)

    @cached_property
    def planes(self) -> NDArray[np.bool_]:
        """[args] whether the operator takes it as a plane with a row for each token."""
        return self._declared(lambda argument: argument.dtypes == "state")

    def _declared(self, asked: Callable[[Argument], bool]) -> NDArray[np.bool_]:
        """[args] what `asked` says of the operator's declaration."""
        flags = [[asked(argument) for argument in operator.arguments] for operator in OPERATORS]
        width = max(map(len, flags)) + 1
        many = [operator.arguments[-1].many and asked(operator.arguments[-1]) for operator in OPERATORS]
        table = np.array([row + [last] * (width - len(row)) for row, last in zip(flags, many, strict=True)])
        task = self.arg_task
        place = np.clip(np.arange(len(task)) - self.tasks[task, Task.ARG_FIRST], 0, width - 1)
        return np.where(task >= 0, table[self.tasks[task, Task.OPERATOR], place], False)

    def written(self, kind: BufferKind) -> Ints:
        """Arguments that write to a buffer of this kind."""
        return self._touching(kind, Access.WRITE)

    def read(self, kind: BufferKind) -> Ints:
        """Arguments that read from a buffer of this kind."""
        return self._touching(kind, Access.READ)

    def _touching(self, kind: BufferKind, access: Access) -> Ints:
        kinds = self.buffers[self.args[:, Arg.BUFFER], BufferRow.KIND]
        return np.flatnonzero((kinds == kind) & (self.args[:, Arg.ACCESS] == access) & (self.arg_task >= 0))

    @cached_property
    def order(self) -> Order:
        """The order of the plan."""
        owned_waits, owned_signals = np.flatnonzero(self.wait_task >= 0), np.flatnonzero(self.signal_task >= 0)
        return Order(
            queues=self.workers[:, (Worker.TASK_FIRST, Worker.TASK_COUNT)],
            tasks=len(self.tasks),
            events=len(self.events),
            waits=np.column_stack([self.wait_task, self.waits[:, Wait.EVENT], self.waits[:, Wait.LAG]])[owned_waits],
            signals=np.column_stack([self.signal_task, self.signals])[owned_signals],
        )

    @cached_property
    def hazards(self) -> "Hazards":
        """Accesses that order does not keep apart."""
        from persistent_engine.check.hazards import find_hazards

        return find_hazards(self)
