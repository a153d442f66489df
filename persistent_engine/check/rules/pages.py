"""P9: activations that share pages live one after the other.

On each page the buffers have an order of time: every access of the one is done before any write of the next begins, and
every access of the last one is done in epoch e before any write of the first begins in e+1. Neighbours are enough: a
buffer that is written passes the order on.
"""

import itertools
from collections import defaultdict

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Access, Arg, BufferKind, BufferRow

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P9."""
    found = Found("P9")
    accesses, writes = _tasks(view, False), _tasks(view, True)
    rank = np.zeros(len(view.tasks), dtype=np.int64)
    rank[view.order.sequence] = np.arange(len(view.tasks))
    within, around = _neighbours(view, {buffer: int(rank[tasks].min()) for buffer, tasks in writes.items()})
    order = view.order
    for earlier, later in sorted(within):
        good = order.all_before(order.latest(accesses[earlier]), writes[later])
        for task in writes[later][~good][:1]:
            blocker = next(one for one in accesses[earlier] if not order.before(one[None], task[None])[0])
            _say(view, found, earlier, later, blocker, task, "still be used")
    for earlier, later in sorted(around):
        good = order.all_follow(order.latest(accesses[earlier]), writes[later])
        for task in writes[later][~good][:1]:
            blocker = next(one for one in accesses[earlier] if not order.follows(one[None], task[None])[0])
            _say(view, found, earlier, later, blocker, task, "still be used by the epoch before")
    return found.all


def _say(view: View, found: Found, earlier: int, later: int, user: int, writer: int, what: str) -> None:
    found(
        f"the pages of the first buffer are written for the second while the first may {what}",
        view.item("buffer", earlier),
        view.item("buffer", later),
        view.item("task", user),
        view.item("task", writer),
    )


def _tasks(view: View, written: bool) -> dict[int, Ints]:
    """Tasks that touch (or write) each buffer that has pages."""
    owner = view.args[:, Arg.BUFFER]
    chosen = (view.arg_task >= 0) & (view.buffers[owner, BufferRow.PAGE_COUNT] > 0)
    chosen &= view.buffers[owner, BufferRow.KIND] == BufferKind.ACTIVATION
    if written:
        chosen &= view.args[:, Arg.ACCESS] == Access.WRITE
    args = np.flatnonzero(chosen)
    args = args[np.argsort(owner[args], kind="stable")]
    numbers, starts = np.unique(owner[args], return_index=True)
    return dict(zip(numbers.tolist(), np.split(view.arg_task[args], starts[1:]), strict=True)) if len(args) else {}


def _neighbours(view: View, begin: dict[int, int]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Pairs (earlier, later) that follow each other on a page, and pairs (last, first) of a page.

    Pages are walked in stretches on which the same buffers lie, so their number does not matter.
    """
    devices: dict[int, list[int]] = defaultdict(list)
    for buffer in begin:
        devices[int(view.buffers[buffer, BufferRow.DEVICE])].append(buffer)
    within, around = set[tuple[int, int]](), set[tuple[int, int]]()
    for buffers in devices.values():
        ordered = np.array(sorted(buffers, key=lambda buffer: begin[buffer]))
        first = view.buffers[ordered, BufferRow.PAGE_FIRST]
        last = first + view.buffers[ordered, BufferRow.PAGE_COUNT]
        for page in np.unique(first):
            here = ordered[(first <= page) & (page < last)].tolist()
            within.update(itertools.pairwise(here))
            if len(here) > 1:
                around.add((here[-1], here[0]))
    return within, around
