"""`speedtier plan diff`: what differs between two plans, from the manifest down to the tasks of each layer."""

from collections import Counter
from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.plan.config import DiffConfig
from deploy.plan.files import read
from persistent_engine.plan import TABLES, Plan, Task

__all__ = ["diff", "differences"]

Difference = tuple[str, str, str]
"""What differs, in the first plan, in the second."""


def _manifest(first: Plan, second: Plan) -> Iterator[Difference]:
    one, other = msgspec.to_builtins(first.manifest), msgspec.to_builtins(second.manifest)
    for field in one:
        if one[field] == other[field]:
            continue
        if isinstance(one[field], str | int) or field == "bucket":
            yield f"manifest: {field}", str(one[field]), str(other[field])
        elif isinstance(one[field], dict):
            gone = [name for name in one[field] if one[field][name] != other[field].get(name)]
            new = [name for name in other[field] if other[field][name] != one[field].get(name)]
            yield f"manifest: {field}", _few(gone), _few(new)
        else:
            yield f"manifest: {field}", _few(_less(one[field], other[field])), _few(_less(other[field], one[field]))


def _less(names: list[str], others: list[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name not in known]


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (", ".join(names[:3]) + more) or "the same names, in another order"


def _layers(plan: Plan) -> dict[int, Counter[tuple[str, int, int, int]]]:
    """By layer: how many tasks of each operator on each device, with which rows."""
    found: dict[int, Counter[tuple[str, int, int, int]]] = {}
    for row in plan.tasks.tolist():
        rows = row[Task.ROW_LAST] - row[Task.ROW_FIRST]
        key = (plan.manifest.operators[row[Task.OPERATOR]], row[Task.DEVICE], rows, row[Task.TILES])
        found.setdefault(row[Task.LAYER], Counter())[key] += 1
    return found


def _told(tasks: Counter[tuple[str, int, int, int]]) -> str:
    counts: Counter[str] = Counter()
    for (operator, *_), count in tasks.items():
        counts[operator] += count
    return ", ".join(f"{operator} {count}" for operator, count in sorted(counts.items())) or "no tasks"


def differences(first: Plan, second: Plan) -> list[Difference]:
    """All of them; empty for equal plans."""
    found = list(_manifest(first, second))
    for name in TABLES:
        one, other = getattr(first, name), getattr(second, name)
        if first.table_bytes(name) == second.table_bytes(name):
            continue
        if len(one) != len(other):
            found.append((f"table: {name}", f"{len(one)} rows", f"{len(other)} rows"))
        else:
            rows = int((one != other).any(axis=1).sum())
            found.append((f"table: {name}", f"{len(one)} rows", f"{rows} of them differ"))
    ones, others = _layers(first), _layers(second)
    for layer in sorted(ones.keys() | others.keys()):
        one, other = ones.get(layer, Counter()), others.get(layer, Counter())
        if one != other:
            found.append((f"layer {layer}", _told(one - other), _told(other - one)))
    return found


def diff(config: DiffConfig) -> None:
    """Print what differs. Raises: PlanError."""
    first, second, console = read(config.first), read(config.second), Console()
    if first.digest == second.digest:
        console.print(f"the same plan, {first.digest}", highlight=False)
        return
    table = Table(title="what differs", title_justify="left")
    for column in ("what", config.first, config.second):
        table.add_column(column, overflow="fold")
    for row in differences(first, second):
        table.add_row(*row)
    console.print(table)
