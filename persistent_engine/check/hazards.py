"""Hazards: the pairs of accesses to one element that order must keep apart, and does not.

One pass over all pairs of a writer and a reader of an activation; memory does not grow with the number of pairs.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from persistent_engine.check.overlap import overlaps
from persistent_engine.check.report import MOST_FINDINGS
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import BufferKind, Task

__all__ = ["Hazards", "Pairs", "find_hazards"]


class Pairs:
    """The first pairs of arguments of a kind, and how many there are."""

    def __init__(self) -> None:
        self.count, self.first = 0, list[tuple[int, int]]()

    def add(self, one: Ints, other: Ints) -> None:
        """Count them all, keep some."""
        self.count += len(one)
        room = MOST_FINDINGS + 1 - len(self.first)
        self.first += list(zip(one[:room].tolist(), other[:room].tolist(), strict=True))


@dataclasses.dataclass
class Hazards:
    """Pairs (writer, reader) of arguments on activations. late: the writer is not done before the reader of its own
    epoch. early: the reader is not done before the writer of the next epoch. Of one device, and across devices.
    read: [args] whether what the argument writes is read, in part or whole."""

    late: Pairs
    early: Pairs
    late_across: Pairs
    early_across: Pairs
    read: NDArray[np.bool_]


def find_hazards(view: View) -> Hazards:
    """All of them. Needs an order (P5)."""
    result = Hazards(Pairs(), Pairs(), Pairs(), Pairs(), np.zeros(len(view.args), dtype=np.bool_))
    device = view.tasks[:, Task.DEVICE]
    for writer, reader in overlaps(view, view.written(BufferKind.ACTIVATION), view.read(BufferKind.ACTIVATION)):
        result.read[writer] = True
        one, other = view.arg_task[writer], view.arg_task[reader]
        across = device[one] != device[other]
        for wrong, near, far in (
            (~view.order.before(one, other), result.late, result.late_across),
            (~view.order.follows(other, one), result.early, result.early_across),
        ):
            near.add(writer[wrong & ~across], reader[wrong & ~across])
            far.add(writer[wrong & across], reader[wrong & across])
    return result
