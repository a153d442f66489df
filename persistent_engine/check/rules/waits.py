"""P4: every wait can be satisfied, by as many signals as it counts.

An event's PRODUCERS is the sum of TILES over the tasks that signal it, and the COUNT of every wait on it; a task
signals an event once; LAG is 0 or 1; TILES is at least 1.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import View
from persistent_engine.plan import Event, Task

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P4."""
    found = Found("P4")
    tiles = view.tasks[:, Task.TILES]
    for task in np.flatnonzero(tiles < 1):
        found(f"it has {tiles[task]} tiles", view.item("task", task))
    owned = view.signal_task >= 0
    events, signallers = view.signals[owned], view.signal_task[owned]
    sums = np.zeros(len(view.events), dtype=np.int64)
    np.add.at(sums, events, tiles[signallers])
    producers = view.events[:, Event.PRODUCERS]
    for event in np.flatnonzero(sums != producers):
        found(f"its producers are {producers[event]}, its signals add up to {sums[event]}", view.item("event", event))
    pairs, times = np.unique(np.column_stack([signallers, events]), axis=0, return_counts=True)
    for task, event in pairs[times > 1]:
        found("the task signals it more than once", view.item("event", event), view.item("task", task))
    _waits(view, found, sums)
    return found.all


def _waits(view: View, found: Found, sums: np.ndarray) -> None:
    for wait in np.flatnonzero(view.wait_task >= 0):
        event, count, lag = view.waits[wait].tolist()
        witness = (view.item("task", view.wait_task[wait]), view.item("event", event), view.item("wait", wait))
        if lag not in (0, 1):
            found(f"it waits with a lag of {lag} epochs, wants 0 or 1", *witness)
        if not sums[event]:
            found("it waits for an event that no task signals", *witness)
        elif count != sums[event]:
            found(f"it waits for {count} signals an epoch, there are {sums[event]}", *witness)
