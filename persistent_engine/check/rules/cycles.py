"""P5: no ring of tasks that wait for each other.

In the unrolled order (queues, waits, credits, gate, over all epochs) credits and the gate lead from one epoch to the
next only, so a ring lies within one epoch and consists of queue order and waits of lag 0. Its absence means that
every task of every epoch runs.
"""

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import View

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P5: at most one ring, each of its tasks waiting for one at or behind the next."""
    found = Found("P5")
    if view.order.cycle:
        found("tasks wait for each other in a ring", *(view.item("task", task) for task in view.order.cycle))
    return found.all
