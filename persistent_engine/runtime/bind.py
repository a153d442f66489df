"""Bind: resolve a plan's buffers to memory, once, at load.

Invariant: every row of the operand tables lies inside memory that this object keeps alive; a plan that names anything
outside its own tables is refused before an address is computed.
"""

import dataclasses

import numpy as np

from persistent_engine.check import Certificate
from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Plan, Task, Wait, Worker
from speedtier.errors import PlanError

__all__ = ["Binding", "allocate", "check_references"]


@dataclasses.dataclass(frozen=True)
class Binding:
    """Memory of a plan. arrays: buffer number -> array [rows, cols] (activations, weights). planes: state buffer
    number -> byte offset in a slot. certificate: of the plan; engines refuse a binding without one."""

    plan: Plan
    arrays: dict[int, np.ndarray]
    planes: dict[int, int]
    certificate: Certificate | None = None

    def name(self, number: int) -> str:
        """Name of a buffer."""
        return str(self.plan.manifest.names[self.plan.buffers[number, BufferRow.NAME]])

    def address(self, arg: np.ndarray) -> int:
        """Address of an argument's box; of a state plane, its byte offset in the slot."""
        buffer = int(arg[Arg.BUFFER])
        if buffer in self.planes:
            return self.planes[buffer]
        array = self.arrays[buffer]
        inside = int(arg[Arg.ROW_FIRST]) * array.shape[1] + int(arg[Arg.COL_FIRST])
        return int(array.ctypes.data + inside * array.itemsize)


def _check_range(name: str, first: np.ndarray, count: np.ndarray, size: int) -> None:
    bad = (first < 0) | (count < 0) | (first.astype(np.int64) + count > size)
    if bad.any():
        raise PlanError(
            f"plan table 'tasks', row {int(np.argmax(bad))}: its {name} lie outside the table; compile again"
        )


def check_references(plan: Plan) -> None:
    """Raise PlanError unless every index of the plan lies inside its table and every box inside its buffer."""
    tasks, args, buffers = plan.tasks, plan.args, plan.buffers
    ranges = (
        ("waits", Task.WAIT_FIRST, Task.WAIT_COUNT),
        ("signals", Task.SIGNAL_FIRST, Task.SIGNAL_COUNT),
        ("args", Task.ARG_FIRST, Task.ARG_COUNT),
        ("params", Task.PARAM_FIRST, Task.PARAM_COUNT),
    )
    for name, start, count in ranges:
        _check_range(name, tasks[:, start], tasks[:, count], len(getattr(plan, name)))
    for table, column, size in (
        ("tasks", Task.OPERATOR, len(plan.manifest.operators)),
        ("waits", Wait.EVENT, len(plan.events)),
        ("signals", 0, len(plan.events)),
        ("args", Arg.BUFFER, len(buffers)),
        ("buffers", BufferRow.NAME, len(plan.manifest.names)),
    ):
        values = getattr(plan, table)[:, column]
        if len(values) and not (values.min() >= 0 and values.max() < size):
            raise PlanError(f"plan table {table!r}: column {int(column)} points outside its target; compile again")
    owner = buffers[args[:, Arg.BUFFER]]
    for first, last, size in (
        (Arg.ROW_FIRST, Arg.ROW_LAST, owner[:, BufferRow.ROWS]),
        (Arg.COL_FIRST, Arg.COL_LAST, owner[:, BufferRow.COLS]),
    ):
        if not ((args[:, first] >= 0) & (args[:, first] <= args[:, last]) & (args[:, last] <= size)).all():
            raise PlanError("plan table 'args': a box lies outside its buffer; compile again")
    _check_range("queues", plan.workers[:, Worker.TASK_FIRST], plan.workers[:, Worker.TASK_COUNT], len(tasks))


def allocate(
    plan: Plan, weights: dict[int, np.ndarray], planes: dict[str, int], certificate: Certificate | None = None
) -> Binding:
    """Bind `plan`: activations are allocated here (64-byte aligned, zero), weights and plane offsets are given.

    planes: state buffer name -> byte offset of the plane in a slot. certificate: see `check.certificate`; the reference
    interpreter needs none, as it touches nothing but its own arrays. Raises: PlanError.
    """
    check_references(plan)
    arrays, offsets = dict(weights), {}
    for number, row in enumerate(plan.buffers):
        name = plan.manifest.names[row[BufferRow.NAME]]
        if row[BufferRow.KIND] == BufferKind.STATE:
            plane = name.partition("@")[0]  # devices of one machine keep their replicas of a plane in the same bytes
            if plane not in planes:
                raise PlanError(f"the slot layout has no plane {plane!r}, which the plan writes; layouts differ")
            offsets[number] = planes[plane]
        elif row[BufferRow.KIND] == BufferKind.ACTIVATION:
            dtype = Dtype(int(row[BufferRow.DTYPE])).numpy
            count = int(row[BufferRow.ROWS]) * int(row[BufferRow.COLS])
            raw = np.zeros(count * dtype.itemsize + 64, dtype=np.uint8)
            raw = raw[-raw.ctypes.data % 64 :][: count * dtype.itemsize]
            arrays[number] = raw.view(dtype).reshape(row[BufferRow.ROWS], row[BufferRow.COLS])
        elif number not in arrays:
            raise PlanError(f"weight {name!r} was not loaded; load the weights of this plan")
    return Binding(plan, arrays, offsets, certificate)
