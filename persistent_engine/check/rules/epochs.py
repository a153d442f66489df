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
from persistent_engine.check.stand_in import stand_ins
from persistent_engine.check.view import View
from persistent_engine.plan import Arg, BufferKind, BufferRow, Worker

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
    for producer, late, event, waiter in stand_ins(view):
        found(
            "the first task can signal for the next epoch before the second has for this one, and stand in for it",
            view.item("task", producer),
            view.item("task", late),
            view.item("event", event),
            view.item("task", waiter),
        )
    _leader(view, found)
    return found.all


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
