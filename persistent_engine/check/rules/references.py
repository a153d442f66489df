"""P1: everything that a plan refers to is there.

Indices lie in their tables, a state plane is one buffer, enumerations name a member, boxes are not empty and lie in
their buffers, queues are disjoint and take every task once, tasks do not share waits, signals or arguments, operators
are numbered as this checker numbers them.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding, Item, Kind
from persistent_engine.check.view import Ints, View
from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import (
    Access,
    Arg,
    BufferKind,
    BufferRow,
    Device,
    Dtype,
    Event,
    Role,
    Task,
    Wait,
    WarpRole,
    Worker,
)

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P1."""
    found = Found("P1")
    _tables(view, found)
    _columns(view, found)
    _boxes(view, found)
    _ranges(view, found)
    _queues(view, found)
    _operators(view, found)
    return found.all


def _tables(view: View, found: Found) -> None:
    for table in ("devices", "workers", "tasks"):
        if not len(getattr(view, table)):
            found(f"the plan has no {table}")
    planned = {view.name(row[BufferRow.NAME]) for row in view.buffers if row[BufferRow.KIND] == BufferKind.WEIGHT}
    for name in view.plan.manifest.weights:
        if name not in planned:
            found(f"the manifest loads {name!r}, which is no weight buffer of the plan")

    planes: dict[tuple[int, str], int] = {}
    for buffer in np.flatnonzero(view.buffers[:, BufferRow.KIND] == BufferKind.STATE).tolist():
        name = view.name(view.buffers[buffer, BufferRow.NAME])
        other = planes.setdefault((int(view.buffers[buffer, BufferRow.DEVICE]), name), buffer)
        if other != buffer:
            found("two buffers are one state plane", view.item("buffer", other), view.item("buffer", buffer))


def _columns(view: View, found: Found) -> None:
    """Every number that is an index or a member of an enumeration."""
    names, devices = len(view.plan.manifest.names), len(view.devices)
    columns: list[tuple[Kind, Ints, int, str, int]] = [
        ("device", view.devices, Device.ROLE, "role", len(Role)),
        ("device", view.devices, Device.NAME, "name", names),
        ("buffer", view.buffers, BufferRow.KIND, "kind", len(BufferKind)),
        ("buffer", view.buffers, BufferRow.DTYPE, "dtype", len(Dtype)),
        ("buffer", view.buffers, BufferRow.NAME, "name", names),
        ("buffer", view.buffers, BufferRow.DEVICE, "device", devices),
        ("event", view.events, Event.NAME, "name", names),
        ("event", view.events, Event.DEVICE, "device", devices),
        ("worker", view.workers, Worker.DEVICE, "device", devices),
        ("worker", view.workers, Worker.WARP_ROLE, "warp role", len(WarpRole)),
        ("task", view.tasks, Task.OPERATOR, "operator", len(view.plan.manifest.operators)),
        ("task", view.tasks, Task.WORKER, "worker", len(view.workers)),
        ("task", view.tasks, Task.LABEL, "label", names),
        ("task", view.tasks, Task.DEVICE, "device", devices),
        ("wait", view.waits, Wait.EVENT, "event", len(view.events)),
        ("signal", view.signals[:, None], 0, "event", len(view.events)),
        ("arg", view.args, Arg.BUFFER, "buffer", len(view.buffers)),
        ("arg", view.args, Arg.ACCESS, "access", len(Access)),
    ]
    for kind, table, column, what, size in columns:
        values = table[:, column]
        for row in np.flatnonzero((values < 0) | (values >= size)):
            found(f"its {what} is {values[row]}, wants 0 to {size - 1}", view.item(kind, row))


def _boxes(view: View, found: Found) -> None:
    for row in np.flatnonzero((view.buffers[:, (BufferRow.ROWS, BufferRow.COLS)] < 1).any(axis=1)):
        found("it has no element", view.item("buffer", row))
    known = (view.args[:, Arg.BUFFER] >= 0) & (view.args[:, Arg.BUFFER] < len(view.buffers))
    chosen = np.flatnonzero(known)
    args = view.args[chosen]
    owner = view.buffers[args[:, Arg.BUFFER]]
    for first, last, size in (
        (Arg.ROW_FIRST, Arg.ROW_LAST, BufferRow.ROWS),
        (Arg.COL_FIRST, Arg.COL_LAST, BufferRow.COLS),
    ):
        good = (args[:, first] >= 0) & (args[:, first] < args[:, last]) & (args[:, last] <= owner[:, size])
        for row in np.flatnonzero(~good):
            box = f"{args[row, first]}:{args[row, last]}"
            found(
                f"its {'rows' if size == BufferRow.ROWS else 'columns'} {box} are no range of its buffer's "
                f"{owner[row, size]}",
                Item("arg", int(chosen[row])),
                view.item("buffer", args[row, Arg.BUFFER]),
            )


def _ranges(view: View, found: Found) -> None:
    for what, first, count, size, shared in (
        ("waits", Task.WAIT_FIRST, Task.WAIT_COUNT, len(view.waits), False),
        ("signals", Task.SIGNAL_FIRST, Task.SIGNAL_COUNT, len(view.signals), False),
        ("args", Task.ARG_FIRST, Task.ARG_COUNT, len(view.args), False),
        ("params", Task.PARAM_FIRST, Task.PARAM_COUNT, len(view.params), True),
    ):
        start, length = view.tasks[:, first], view.tasks[:, count]
        outside = (start < 0) | (length < 0) | (start + length > size)
        for row in np.flatnonzero(outside):
            found(
                f"its {what} are {length[row]} from {start[row]} of a table of {size}",
                view.item("task", row),
            )
        for one, other in [] if shared or outside.any() else _shared(start, length):
            found(f"two tasks share {what}", view.item("task", one), view.item("task", other))
    rows = view.tasks[:, (Task.ROW_FIRST, Task.ROW_LAST)]
    for row in np.flatnonzero((rows[:, 0] < 0) | (rows[:, 0] >= rows[:, 1])):
        found(f"its rows {rows[row, 0]}:{rows[row, 1]} are no range", view.item("task", row))


def _shared(start: Ints, length: Ints) -> list[tuple[int, int]]:
    """Neighbours, sorted by start, that overlap; empty ranges do not."""
    filled = np.flatnonzero(length > 0)
    order = filled[np.argsort(start[filled], kind="stable")]
    clash = np.flatnonzero(start[order[1:]] < (start + length)[order[:-1]])
    return [(int(order[i]), int(order[i + 1])) for i in clash]


def _queues(view: View, found: Found) -> None:
    first, count = view.workers[:, Worker.TASK_FIRST], view.workers[:, Worker.TASK_COUNT]
    outside = (first < 0) | (count < 0) | (first + count > len(view.tasks))
    for worker in np.flatnonzero(outside):
        message = f"its queue is {count[worker]} tasks from {first[worker]} of {len(view.tasks)}"
        found(message, view.item("worker", worker))
    if outside.any():
        return
    for one, other in _shared(first, count):
        found("two queues share tasks", view.item("worker", one), view.item("worker", other))
    owner = np.full(len(view.tasks), -1, dtype=np.int64)
    for worker, (start, length) in enumerate(zip(first, count, strict=True)):
        owner[start : start + length] = worker
    for task in np.flatnonzero(owner < 0):
        found("no queue has it", view.item("task", task))
    for task in np.flatnonzero((owner >= 0) & (owner != view.tasks[:, Task.WORKER])):
        message = f"it says that worker {view.tasks[task, Task.WORKER]} runs it, the queues say worker {owner[task]}"
        found(message, view.item("task", task))


def _operators(view: View, found: Found) -> None:
    """Runtimes run a task by the number of its operator, so numbers must mean the same to them and to the plan."""
    named = view.plan.manifest.operators
    for number in np.unique(view.tasks[:, Task.OPERATOR]).tolist():
        if not 0 <= number < len(named):
            continue  # found already
        known = OPERATORS[number].name if number < len(OPERATORS) else None
        if named[number] != known:
            found(f"operator {number} is {named[number]!r} to the plan and {known!r} here", Item("operator", number))
