"""P11: what goes from device to device arrives, whole, in its time.

Both sides of a copy have one shape and as many bytes. What is written to another device is read there. Of accesses to
it on different devices, the writer is done before each reader begins (the reader's queue has waited for it), and the
reader is done before the writer of the next epoch begins (a credit, or the step gate).
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.rules.regions import pair_witness
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Access, Arg, BufferKind, BufferRow, Dtype, Task

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P11."""
    found = Found("P11")
    _both_sides(view, found)
    home = view.buffers[view.args[:, Arg.BUFFER], BufferRow.DEVICE]
    away = (view.arg_task >= 0) & (home != view.tasks[view.arg_task, Task.DEVICE])
    for arg in np.flatnonzero(away & (view.args[:, Arg.ACCESS] == Access.WRITE) & ~view.hazards.read):
        found(
            f"it sends to device {home[arg]}, where nothing reads what it sends",
            view.item("task", view.arg_task[arg]),
            view.item("buffer", view.args[arg, Arg.BUFFER]),
        )
    for arg in np.flatnonzero(away & (view.buffers[view.args[:, Arg.BUFFER], BufferRow.KIND] != BufferKind.ACTIVATION)):
        found(
            f"it touches what is no activation on device {home[arg]}",
            view.item("task", view.arg_task[arg]),
            view.item("buffer", view.args[arg, Arg.BUFFER]),
        )
    for writer, reader in view.hazards.late_across.first:
        found("read before it is sure to have come from the other device", *pair_witness(view, writer, reader))
    for writer, reader in view.hazards.early_across.first:
        found("sent again, without a credit, while it may still be read", *pair_witness(view, writer, reader))
    return found.all


def _both_sides(view: View, found: Found) -> None:
    """Copies: tasks with one argument that is read and one that is written and may lie elsewhere."""
    remote = np.flatnonzero(view.remote & (view.args[:, Arg.ACCESS] == Access.WRITE))
    tasks = view.arg_task[remote]
    pairs = view.tasks[tasks, Task.ARG_COUNT] == 2
    remote, first = remote[pairs], view.tasks[tasks[pairs], Task.ARG_FIRST]
    source = 2 * first + 1 - remote
    shapes = (_shape(view, source) != _shape(view, remote)).any(axis=1)
    bits = np.array([dtype.bits for dtype in Dtype])[view.buffers[:, BufferRow.DTYPE]]
    sizes = bits[view.args[source, Arg.BUFFER]] != bits[view.args[remote, Arg.BUFFER]]
    for i in np.flatnonzero(shapes | sizes):
        found("the box that is sent and the box that is written differ", *pair_witness(view, source[i], remote[i])[:2])


def _shape(view: View, args: Ints) -> Ints:
    box = view.args[args]
    return np.column_stack([box[:, Arg.ROW_LAST] - box[:, Arg.ROW_FIRST], box[:, Arg.COL_LAST] - box[:, Arg.COL_FIRST]])
