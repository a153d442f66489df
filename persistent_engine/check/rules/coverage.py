"""P6: what an epoch writes, it writes once and whole.

The boxes written in an activation do not overlap and together are the activation. (An activation that nothing touches
is P12's.) A state plane that is read is stored to.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.overlap import overlaps
from persistent_engine.check.report import Finding, Item
from persistent_engine.check.view import View
from persistent_engine.plan import Arg, BufferKind, BufferRow

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P6."""
    found = Found("P6")
    written = view.written(BufferKind.ACTIVATION)
    for first, second in overlaps(view, written, written):
        for one, other in zip(first[first < second], second[first < second], strict=True):
            found("it is written twice where two boxes overlap", *_witness(view, one), *_witness(view, other)[1:])
    boxes = view.args[written]
    areas = (boxes[:, Arg.ROW_LAST] - boxes[:, Arg.ROW_FIRST]) * (boxes[:, Arg.COL_LAST] - boxes[:, Arg.COL_FIRST])
    covered = [0] * len(view.buffers)  # Python's numbers: boxes that overlap can add up to more than 64 bits hold
    for buffer, area in zip(boxes[:, Arg.BUFFER].tolist(), areas.tolist(), strict=True):
        covered[buffer] += area
    used = np.unique(np.concatenate([boxes[:, Arg.BUFFER], view.args[view.read(BufferKind.ACTIVATION), Arg.BUFFER]]))
    for buffer in used.tolist():
        size = int(view.buffers[buffer, BufferRow.ROWS]) * int(view.buffers[buffer, BufferRow.COLS])
        if covered[buffer] < size:
            found(f"{covered[buffer]} of its {size} elements are written", view.item("buffer", buffer))
    stored = view.memory[view.args[view.written(BufferKind.STATE), Arg.BUFFER]]
    for buffer in np.setdiff1d(view.memory[view.args[view.read(BufferKind.STATE), Arg.BUFFER]], stored):
        found("it is read, and no task stores this token's row in it", view.item("buffer", buffer))
    return found.all


def _witness(view: View, arg: int) -> tuple[Item, Item]:
    return view.item("buffer", view.args[arg, Arg.BUFFER]), view.item("task", view.arg_task[arg])
