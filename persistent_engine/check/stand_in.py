"""Stand-ins: a producer one epoch ahead whose signal is taken for that of a late one, so that a waiter goes on too
early.

A counter says how many signals there were, not whose. For a wait on an event with several producers, with p and q two
of them, q of this epoch has to come before p of the next; or the waiter has to; or something else that holds before
the waiter goes on has to come after q: what its queue has run, or what it waits for beside. (Of all that could be
missing when a waiter goes on, the last by order has nothing after it that is missing too, so it falls under one of
the other two.)
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Task, Wait

__all__ = ["stand_ins"]


def stand_ins(view: View) -> Iterator[tuple[int, int, int, int]]:
    """(producer that may be ahead, producer that may be late, event, waiter), one ahead for each that may be late."""
    order = view.order
    producers = _grouped(view.signals, view.signal_task, len(view.events))
    events, lags = view.waits[:, Wait.EVENT], view.waits[:, Wait.LAG]
    waiters = [_grouped(events, np.where(lags == lag, view.wait_task, -1), len(view.events)) for lag in (0, 1)]
    for event, signallers in enumerate(producers):
        if len(signallers) < 2:
            continue
        ahead = signallers[~order.all_follow(order.latest(signallers), signallers)]
        for lag, after in ((0, order.all_follow), (1, order.all_known)):
            waiting = waiters[lag][event]
            if not len(ahead) or bool(after(order.latest(waiting), ahead).all()):
                continue
            for waiter in waiting.tolist():
                may = signallers[~after(order.latest(np.array([waiter])), signallers)]
                for late in signallers[~_sure(view, producers, waiter, signallers, lag)].tolist():
                    rivals = may[~order.follows(np.full_like(may, late), may)]
                    if len(rivals) and not _too_few(view, rivals, late, waiter, lag):
                        yield int(rivals[0]), late, event, waiter


def _too_few(view: View, rivals: Ints, late: int, waiter: int, lag: int) -> bool:
    """Whether `rivals`, if they can be one epoch ahead and no more, have fewer tiles together than are late."""
    once = lag == 1 and bool(view.order.follows(np.full_like(rivals, waiter), rivals).all())
    return once and int(view.tasks[rivals, Task.TILES].sum()) < int(view.tasks[late, Task.TILES])


def _sure(view: View, producers: list[Ints], waiter: int, signallers: Ints, lag: int) -> NDArray[np.bool_]:
    """Which of `signallers`, `lag` epochs before, are done when `waiter` goes on, whatever their own event counts."""
    order = view.order
    sure = order.arrived(signallers, waiter, lag)
    first, count = view.tasks[waiter, (Task.WAIT_FIRST, Task.WAIT_COUNT)].tolist()
    for event, _, other_lag in view.waits[first : first + count].tolist():
        others = producers[event]
        for i in np.flatnonzero(~sure):
            one = np.full_like(others, signallers[i])
            if other_lag == lag:
                sure[i] = order.before(one, others).any() or (len(others) == 1 and others[0] == signallers[i])
            elif lag == 1:
                sure[i] = order.follows(one, others).any()
    return sure


def _grouped(keys: Ints, tasks: Ints, size: int) -> list[Ints]:
    """Tasks (those that are not -1) by key."""
    owned = np.flatnonzero(tasks >= 0)
    owned = owned[np.argsort(keys[owned], kind="stable")]
    cuts = np.searchsorted(keys[owned], np.arange(1, size))
    return np.split(tasks[owned], cuts) if size else []
