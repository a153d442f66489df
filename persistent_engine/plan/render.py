"""A plan as text: one line a task, by worker, with what it waits for and signals."""

from collections.abc import Iterator

from persistent_engine.plan.plan import Plan
from persistent_engine.plan.records import Arg, BufferRow, Event, Task, Wait, Worker

__all__ = ["render"]


def _names(plan: Plan, task: int) -> tuple[str, str]:
    row, names = plan.tasks[task], plan.manifest.names
    first, count = row[Task.WAIT_FIRST], row[Task.WAIT_COUNT]
    waits = [
        f"{names[plan.events[w[Wait.EVENT], Event.NAME]]}x{w[Wait.COUNT]}" for w in plan.waits[first : first + count]
    ]
    first, count = row[Task.SIGNAL_FIRST], row[Task.SIGNAL_COUNT]
    signals = [names[plan.events[s[0], Event.NAME]] for s in plan.signals[first : first + count]]
    return ", ".join(waits) or "-", ", ".join(signals) or "-"


def render(plan: Plan) -> Iterator[str]:
    """Lines for a person: totals, then each worker's queue in program order."""
    manifest = plan.manifest
    yield f"plan {plan.digest[:16]}  model {manifest.model}  device {manifest.device}  capacity {manifest.capacity}"
    yield f"{len(plan.workers)} workers, {len(plan.tasks)} tasks, {len(plan.events)} events, {len(plan.waits)} waits"
    for index, worker in enumerate(plan.workers):
        yield f"worker {index} on device {worker[Worker.DEVICE]}"
        first = worker[Worker.TASK_FIRST]
        for task in range(first, first + worker[Worker.TASK_COUNT]):
            row = plan.tasks[task]
            waits, signals = _names(plan, task)
            args = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]
            buffers = " ".join(manifest.names[plan.buffers[a[Arg.BUFFER], BufferRow.NAME]] for a in args)
            yield (
                f"  {task:5d} {manifest.operators[row[Task.OPERATOR]]:<14} {manifest.names[row[Task.LABEL]]:<28}"
                f" rows {row[Task.ROW_FIRST]}:{row[Task.ROW_LAST]}  wait {waits}  signal {signals}  [{buffers}]"
            )
