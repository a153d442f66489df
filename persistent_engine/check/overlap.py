"""Overlap: pairs of arguments whose boxes share an element of a buffer.

A sweep: boxes are sorted by where they start on the axis that tells them apart best, so each meets only those that it
can touch. Pairs come in blocks; memory stays bounded whatever the plan.
"""

from collections.abc import Iterator

import numpy as np

from persistent_engine.check.view import Ints, View, spread
from persistent_engine.plan import Arg

__all__ = ["overlaps"]

BLOCK = 1 << 21
"""Candidate pairs that are looked at together."""


def overlaps(view: View, left: Ints, right: Ints, block: int = BLOCK) -> Iterator[tuple[Ints, Ints]]:
    """Blocks of (arguments of `left`, arguments of `right`), pair by pair, whose boxes overlap."""
    args = view.args
    lefts, rights = _by_memory(view, left), _by_memory(view, right)
    held: list[tuple[Ints, Ints]] = []
    size = 0
    for memory, ones in lefts.items():
        others = rights.get(memory)
        if others is None:
            continue
        for first, second in _candidates(args, ones, others, block):
            held.append((first, second))
            size += len(first)
            if size >= block:
                yield _touching(args, held)
                held, size = [], 0
    if held:
        yield _touching(args, held)


def _by_memory(view: View, chosen: Ints) -> dict[int, Ints]:
    owner = view.memory[view.args[chosen, Arg.BUFFER]]
    order = np.argsort(owner, kind="stable")
    numbers, starts = np.unique(owner[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(chosen[order], starts[1:]), strict=True)) if len(chosen) else {}


def _candidates(args: Ints, ones: Ints, others: Ints, block: int) -> Iterator[tuple[Ints, Ints]]:
    """Pairs that overlap on one axis, a block at a time."""
    axes = ((Arg.ROW_FIRST, Arg.ROW_LAST), (Arg.COL_FIRST, Arg.COL_LAST))
    first, last = max(axes, key=lambda axis: len(np.unique(args[others, axis[0]])))
    others = others[np.argsort(args[others, first], kind="stable")]
    ends = np.maximum.accumulate(args[others, last])
    low = np.searchsorted(ends, args[ones, first], side="right")
    high = np.searchsorted(args[others, first], args[ones, last], side="left")
    count = np.maximum(high - low, 0)
    total = np.cumsum(count)
    start = 0
    while start < len(ones):
        done = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, done + block, side="right")), start + 1)
        owner, member = spread(low[start:stop], count[start:stop])
        yield ones[start:stop][owner], others[member]
        start = stop


def _touching(args: Ints, held: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    first, second = (np.concatenate(side) for side in zip(*held, strict=True))
    one, other = args[first], args[second]
    both = (
        (one[:, Arg.ROW_FIRST] < other[:, Arg.ROW_LAST])
        & (other[:, Arg.ROW_FIRST] < one[:, Arg.ROW_LAST])
        & (one[:, Arg.COL_FIRST] < other[:, Arg.COL_LAST])
        & (other[:, Arg.COL_FIRST] < one[:, Arg.COL_LAST])
    )
    return first[both], second[both]
