"""`speedtier plan show`: devices, queues and, if asked, one layer of a plan as tables."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from deploy.plan.config import ShowConfig
from deploy.plan.files import read
from persistent_engine.plan import TABLES, Arg, BufferRow, Device, Event, Plan, Role, Task, Wait, WarpRole, Worker
from speedtier.errors import PlanError

__all__ = ["show"]

WIDE = 160
"""Columns of text where no terminal says how many."""

MOST_ROWS = 400
"""Tasks of a layer that are listed; how many more there are is said."""


def _short(name: str, layer: int) -> str:
    """A name without what the table's title says."""
    return name.replace(f"model.layers.{layer}.", "").replace(f"layers.{layer}.", "")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column.startswith("#") else "left")
    return table


def queues(plan: Plan) -> Table:
    """A row for each worker: its device, roles, lanes, and what is in its queue."""
    names, operators = plan.manifest.names, plan.manifest.operators
    table = _table("queues", "#worker", "device", "role", "warp role", "#lanes", "#tasks", "#tiles", "most of it")
    for number, row in enumerate(plan.workers.tolist()):
        device = plan.devices[row[Worker.DEVICE]]
        tasks = plan.tasks[row[Worker.TASK_FIRST] : row[Worker.TASK_FIRST] + row[Worker.TASK_COUNT]]
        most = Counter(operators[operator] for operator in tasks[:, Task.OPERATOR].tolist()).most_common(3)
        table.add_row(
            str(number),
            f"{row[Worker.DEVICE]} {names[device[Device.NAME]]}",
            Role(int(device[Device.ROLE])).name,
            WarpRole(row[Worker.WARP_ROLE]).name,
            str(row[Worker.LANES]),
            str(len(tasks)),
            str(int(tasks[:, Task.TILES].sum())),
            ", ".join(f"{operator} {count}" for operator, count in most),
        )
    return table


def _waits(plan: Plan, row: list[int]) -> str:
    names, shown = plan.manifest.names, []
    for wait in plan.waits[row[Task.WAIT_FIRST] : row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT]].tolist():
        event = plan.events[wait[Wait.EVENT]]
        late = f" of {wait[Wait.LAG]} step(s) before" if wait[Wait.LAG] else ""
        shown.append(f"{names[event[Event.NAME]]} x{wait[Wait.COUNT]}{late}")
    return "\n".join(shown) or "-"


def layer(plan: Plan, number: int) -> tuple[Table, int]:
    """The layer's tasks by worker in queue order, and how many were left out. Raises: PlanError for an absent layer."""
    found = [task for task, row in enumerate(plan.tasks.tolist()) if row[Task.LAYER] == number]
    if not found:
        layers = plan.tasks[:, Task.LAYER]
        raise PlanError(f"layer is {number}; the plan has {layers.min()} to {layers.max()} (-1: before the first)")
    table = _table(
        f"layer {number}", "#worker", "#task", "operator", "gives", "rows", "#tiles", "waits for", "signals", "reads"
    )
    names = plan.manifest.names
    for task in found[:MOST_ROWS]:
        row = plan.tasks[task].tolist()
        args = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]].tolist()
        reads = [names[plan.buffers[a[Arg.BUFFER], BufferRow.NAME]] for a in args if not a[Arg.ACCESS]]
        first, count = row[Task.SIGNAL_FIRST], row[Task.SIGNAL_COUNT]
        events = plan.signals[first : first + count, 0].tolist()
        table.add_row(
            str(row[Task.WORKER]),
            str(task),
            plan.manifest.operators[row[Task.OPERATOR]],
            _short(names[row[Task.LABEL]], number),
            f"{row[Task.ROW_FIRST]}:{row[Task.ROW_LAST]}",
            str(row[Task.TILES]),
            _short(_waits(plan, row), number),
            "\n".join(_short(names[plan.events[event, Event.NAME]], number) for event in events) or "-",
            "\n".join(_short(name, number) for name in dict.fromkeys(reads)) or "-",
        )
    return table, max(0, len(found) - MOST_ROWS)


def show(config: ShowConfig) -> None:
    """Print the plan. Raises: PlanError."""
    plan, console = read(config.plan), Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    manifest = plan.manifest
    first, last = manifest.bucket
    console.print(f"{manifest.model} for {manifest.device}, {first} to {last} tokens of state", highlight=False)
    counts = ", ".join(f"{len(getattr(plan, name))} {name}" for name in TABLES)
    console.print(f"{counts}\ncontent hash {plan.digest}", highlight=False)
    console.print(queues(plan))
    if config.layer is not None:
        table, left = layer(plan, config.layer)
        console.print(table)
        if left:
            console.print(f"and {left} more tasks; `speedtier plan timeline` draws them all", highlight=False)
