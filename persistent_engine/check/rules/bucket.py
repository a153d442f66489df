"""P13: counts that are only known while it runs stay within what the plan has room for.

The bucket is a range within 1 to the capacity. For its largest number of tokens: state planes and tables of angles
have a row for each, in the box of every task that uses them; the parts that share a plane, the ranges of tokens that
are scored, and the parts of a split attention start at 0, follow each other and reach the last token (of the chosen
ones, where some are chosen); no more tokens are chosen than there are rows, than the capacity, or than the model's
`index_topk`.
"""

from collections import defaultdict

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding, Item
from persistent_engine.check.view import Ints, View
from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import Access, Arg, BufferRow, Task

__all__ = ["rule"]

Part = tuple[int, int, int]
"""First, last (half open), task."""


def rule(view: View) -> list[Finding]:
    """Findings of P13."""
    found = Found("P13")
    manifest = view.plan.manifest
    fewest, most = manifest.bucket
    if not 1 <= fewest <= most <= manifest.capacity:
        found(f"its bucket is {fewest} to {most} tokens, wants a range within 1 to its capacity, {manifest.capacity}")
    rows = view.buffers[:, BufferRow.ROWS]
    plane = np.zeros(len(rows), dtype=np.bool_)
    plane[view.args[view.planes, Arg.BUFFER]] = True
    for buffer in np.flatnonzero(plane & ((rows < most) | (rows > manifest.capacity))):
        message = f"it has {rows[buffer]} rows for up to {most} tokens of a slot for {manifest.capacity}"
        found(message, view.item("buffer", buffer))
    longest = manifest.limits.get("capacity", manifest.capacity)
    if longest > manifest.capacity:
        found(f"its limit of {longest} tokens is past its capacity, {manifest.capacity}")
    vocabulary = manifest.limits.get("vocabulary", 0)
    for arg in _named(view, "table").tolist():
        first, last = view.args[arg, (Arg.ROW_FIRST, Arg.ROW_LAST)].tolist()
        if first or last < vocabulary:
            message = f"it looks {vocabulary} tokens up in rows {first} to {last}"
            found(message, view.item("task", view.arg_task[arg]))
    stored = np.flatnonzero(view.planes & (view.args[:, Arg.ACCESS] == Access.WRITE))
    for arg in np.concatenate([stored, _named(view, "cos_sin")]).tolist():
        first, last = view.args[arg, (Arg.ROW_FIRST, Arg.ROW_LAST)].tolist()
        if first or last < most:
            message = f"it is given rows {first} to {last} for up to {most} tokens"
            found(message, view.item("task", view.arg_task[arg]), view.item("buffer", view.args[arg, Arg.BUFFER]))
    _planes(view, found, most)
    _ranges(view, found, most)
    _chosen(view, found)
    return found.all


def _named(view: View, name: str) -> Ints:
    """Arguments that their operators call `name`."""
    result = []
    for number, operator in enumerate(OPERATORS):
        places = [place for place, argument in enumerate(operator.arguments) if argument.name == name]
        for place in places:
            result.append(view.tasks[view.tasks[:, Task.OPERATOR] == number, Task.ARG_FIRST] + place)
    return np.concatenate(result)


def _written(view: View, task: int) -> int:
    """The first buffer that a task writes, -1 for none."""
    first, count = view.tasks[task, (Task.ARG_FIRST, Task.ARG_COUNT)].tolist()
    args = view.args[first : first + count]
    written = args[args[:, Arg.ACCESS] == Access.WRITE]
    return int(written[0, Arg.BUFFER]) if len(written) else -1


def _planes(view: View, found: Found, most: int) -> None:
    """What one operator reads of a plane for the same units of one result, perhaps in parts."""
    groups: dict[tuple[int, ...], list[Part]] = defaultdict(list)
    for arg in np.flatnonzero(view.planes & (view.args[:, Arg.ACCESS] == Access.READ)).tolist():
        buffer, _, first, last, left, right = view.args[arg].tolist()
        task = int(view.arg_task[arg])
        unit = view.tasks[task, (Task.OPERATOR, Task.DEVICE, Task.ROW_FIRST, Task.ROW_LAST)].tolist()
        groups[buffer, left, right, *unit, _written(view, task)].append((first, last, task))
    for (buffer, *_), parts in groups.items():
        _gaps(view, found, parts, most, "tokens", view.item("buffer", buffer))


def _ranges(view: View, found: Found, most: int) -> None:
    """Tileable ranges that stand for tokens, or for parts of as many tokens as a parameter says."""
    for number, operator in enumerate(OPERATORS):
        if operator.rows not in ("tokens", "parts"):
            continue
        names = [argument.name for argument in operator.arguments]
        groups: dict[int, list[Part]] = defaultdict(list)
        needs: dict[int, int] = {}
        for task in np.flatnonzero(view.tasks[:, Task.OPERATOR] == number).tolist():
            row = view.tasks[task].tolist()
            target = _written(view, task)
            groups[target].append((row[Task.ROW_FIRST], row[Task.ROW_LAST], task))
            need = most
            if "ids" in names:
                ids = view.args[row[Task.ARG_FIRST] + names.index("ids")]
                need = int(ids[Arg.COL_LAST] - ids[Arg.COL_FIRST])
            if "tokens" in operator.params:
                tokens = max(1.0, float(view.params[row[Task.PARAM_FIRST] + operator.params.index("tokens")]))
                need = -int(-need // tokens)
            needs[target] = max(need, needs.get(target, 0))
        for target, parts in groups.items():
            _gaps(view, found, parts, needs.get(target, 0), operator.rows, view.item("buffer", target))


def _gaps(view: View, found: Found, parts: list[Part], need: int, what: str, owner: Item) -> None:
    """Find where `parts` leave something of [0, need) out, or have it twice."""
    parts.sort()
    reached, before = 0, parts[0][2]
    for first, last, task in parts:
        if first != reached:
            wrong = "left out" if first > reached else "there twice"
            low, high = min(first, reached), max(first, reached)
            found(
                f"{what} {low} to {high} of it are {wrong}", owner, view.item("task", before), view.item("task", task)
            )
        reached, before = max(last, reached), task
    if reached < need:
        found(f"{what} {reached} to {need} of it are left out", owner, view.item("task", before))


def _chosen(view: View, found: Found) -> None:
    """Ids of chosen tokens: as many as the box that they are written to has columns."""
    manifest = view.plan.manifest
    most = min(manifest.capacity, manifest.limits.get("index_topk", manifest.capacity))
    for number, operator in enumerate(OPERATORS):
        names = [argument.name for argument in operator.arguments]
        if operator.name != "index_select":
            continue
        for task in np.flatnonzero(view.tasks[:, Task.OPERATOR] == number).tolist():
            ids = view.args[view.tasks[task, Task.ARG_FIRST] + names.index("ids")]
            chosen = int(ids[Arg.COL_LAST] - ids[Arg.COL_FIRST])
            if chosen > most:
                found(f"it chooses {chosen} tokens, at most {most} can be chosen", view.item("task", task))
