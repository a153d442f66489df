"""A plan as text: one line a task, by worker, with what it waits for and signals.

Invariant: any plan that `decode` gives can be rendered; what points nowhere is shown as `?`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from persistent_engine.plan.plan import Plan, Table
from persistent_engine.plan.records import Arg, BufferRow, Event, Task, Wait, Worker

__all__ = ["render"]


def _at(names: Sequence[str], number: Any) -> str:
    return names[int(number)] if 0 <= int(number) < len(names) else f"?{int(number)}"


def _rows(table: Table, first: Any, count: Any) -> Table:
    """Rows [first, first + count) of a table, as far as they are there."""
    start = max(0, int(first))
    return table[start : max(start, int(first) + int(count))]


def _named(names: Sequence[str], table: Table, row: Any, column: int) -> str:
    return _at(names, table[int(row), column]) if 0 <= int(row) < len(table) else f"?{int(row)}"


def _line(plan: Plan, task: int) -> str:
    row, names = plan.tasks[task], plan.manifest.names
    waits = ", ".join(
        f"{_named(names, plan.events, wait[Wait.EVENT], Event.NAME)}x{wait[Wait.COUNT]}"
        + (f"-{wait[Wait.LAG]}" if wait[Wait.LAG] else "")
        for wait in _rows(plan.waits, row[Task.WAIT_FIRST], row[Task.WAIT_COUNT])
    )
    signals = ", ".join(
        _named(names, plan.events, signal[0], Event.NAME)
        for signal in _rows(plan.signals, row[Task.SIGNAL_FIRST], row[Task.SIGNAL_COUNT])
    )
    buffers = " ".join(
        _named(names, plan.buffers, arg[Arg.BUFFER], BufferRow.NAME)
        for arg in _rows(plan.args, row[Task.ARG_FIRST], row[Task.ARG_COUNT])
    )
    operator, label = _at(plan.manifest.operators, row[Task.OPERATOR]), _at(names, row[Task.LABEL])
    return (
        f"  {task:5d} {operator:<14} {label:<28} rows {row[Task.ROW_FIRST]}:{row[Task.ROW_LAST]}"
        f"  wait {waits or '-'}  signal {signals or '-'}  [{buffers}]"
    )


def render(plan: Plan) -> Iterator[str]:
    """Lines for a person: totals, then each worker's queue in program order. A wait `x2-1` is for the epoch before."""
    manifest = plan.manifest
    yield f"plan {plan.digest[:16]}  model {manifest.model}  device {manifest.device}  capacity {manifest.capacity}"
    yield f"{len(plan.workers)} workers, {len(plan.tasks)} tasks, {len(plan.events)} events, {len(plan.waits)} waits"
    for index, worker in enumerate(plan.workers):
        yield f"worker {index} on device {worker[Worker.DEVICE]}"
        first = max(0, int(worker[Worker.TASK_FIRST]))
        last = int(worker[Worker.TASK_FIRST]) + int(worker[Worker.TASK_COUNT])
        for task in range(first, min(last, len(plan.tasks))):
            yield _line(plan, task)
