"""P8: workers in different epochs do not meet.

Between epochs e and e+1 (order does the rest, as a task of epoch e+1 is done before itself in epoch e+2):
- a reader of an activation is done in e before its writer begins in e+1;
- of two tasks on a state plane of which one writes, each is done in e before the other begins in e+1;
- counters: for a wait on an event with several producers, each producer's next signals come after all of this epoch's
  signals, or after the waiter has gone on; else a producer one epoch ahead stands in for a late one, and the waiter
  goes on without it;
- registers and the slot: a task that reads a register or touches the state is done before the leader's epoch ends, when
  registers change and the slot may be given away.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.registers import READERS
from persistent_engine.check.report import Finding
from persistent_engine.check.rules.regions import pair_witness, state_pairs
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Arg, BufferKind, BufferRow, Wait, Worker

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P8."""
    found = Found("P8")
    for writer, reader in view.hazards.early.first:
        found("written in the next epoch while it may still be read", *pair_witness(view, writer, reader))
    for one, other in state_pairs(view):
        first, second = view.arg_task[one], view.arg_task[other]
        loose = ~(view.order.follows(first, second) & view.order.follows(second, first))
        for left, right in zip(one[loose], other[loose], strict=True):
            found("state touched in two epochs at once", *pair_witness(view, left, right))
    _stand_ins(view, found)
    _leader(view, found)
    return found.all


def _stand_ins(view: View, found: Found) -> None:
    """Producers that can be an epoch ahead of another one while someone still waits for that one."""
    producers = _grouped(view.signals, view.signal_task, len(view.events))
    event_of, lag_of = view.waits[:, Wait.EVENT], view.waits[:, Wait.LAG]
    waiters = [_grouped(event_of, np.where(lag_of == lag, view.wait_task, -1), len(view.events)) for lag in (0, 1)]
    order = view.order
    for event, signallers in enumerate(producers):
        if len(signallers) < 2:
            continue
        ahead = signallers[~order.all_follow(order.latest(signallers), signallers)]
        for lag, done in ((0, order.all_follow), (1, order.all_known)):
            waiting = waiters[lag][event]
            if not len(waiting) or not len(ahead):
                continue
            for producer in ahead[~done(order.latest(waiting), ahead)]:
                late = signallers[~order.follows(signallers, np.full_like(signallers, producer))]
                found(
                    "the first task can signal for the next epoch before the second has signalled for this one, and "
                    "stand in for it",
                    view.item("task", producer),
                    view.item("task", late[0]),
                    view.item("event", event),
                    view.item("task", waiting[0]),
                )


def _grouped(keys: Ints, tasks: Ints, size: int) -> list[Ints]:
    """Tasks (those that are not -1) by key."""
    owned = np.flatnonzero(tasks >= 0)
    owned = owned[np.argsort(keys[owned], kind="stable")]
    cuts = np.searchsorted(keys[owned], np.arange(1, size))
    return np.split(tasks[owned], cuts) if size else []


def _leader(view: View, found: Found) -> None:
    """Tasks that the leader's end of the epoch does not wait for, though it changes what they read."""
    first, count = view.workers[0, (Worker.TASK_FIRST, Worker.TASK_COUNT)].tolist()
    stateful = view.operators(lambda operator: operator.name in READERS)
    on_state = view.buffers[view.args[:, Arg.BUFFER], BufferRow.KIND] == BufferKind.STATE
    stateful[view.arg_task[on_state & (view.arg_task >= 0)]] = True
    tasks = np.flatnonzero(stateful)
    if not count:
        for task in tasks:
            found("it uses registers or state, and worker 0, which leads, has no task", view.item("task", task))
        return
    last = first + count - 1
    for task in tasks[~view.order.before(tasks, np.full_like(tasks, last)) & (tasks != last)]:
        found(
            "it uses registers or state and may still run when the leader's epoch has ended with the second task",
            view.item("task", task),
            view.item("task", last),
        )
