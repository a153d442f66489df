"""P13: counts that are only known while it runs stay within what the plan has room for.

For every number of tokens in the bucket: state planes have a row for each token, the parts of a split attention cover
each token that there can be exactly once, and no more tokens are selected than there can be.
"""

from collections import defaultdict

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import View
from persistent_engine.plan import BufferKind, BufferRow, Task

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P13."""
    found = Found("P13")
    manifest = view.plan.manifest
    fewest, most = manifest.bucket
    if not 1 <= fewest <= most <= manifest.capacity:
        found(f"its bucket is {fewest} to {most} tokens, wants a range within 1 to its capacity, {manifest.capacity}")
    state = view.buffers[:, BufferRow.KIND] == BufferKind.STATE
    for buffer in np.flatnonzero(state & (view.buffers[:, BufferRow.ROWS] < most)):
        rows = view.buffers[buffer, BufferRow.ROWS]
        found(f"it has {rows} rows for up to {most} tokens", view.item("buffer", buffer))
    _parts(view, found, most)
    return found.all


def _parts(view: View, found: Found, most: int) -> None:
    """Reads of one plane by one operator for the same units, in parts."""
    groups: dict[tuple[int, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for arg in view.read(BufferKind.STATE).tolist():
        buffer, _, first, last, left, right = view.args[arg].tolist()
        task = int(view.arg_task[arg])
        unit = view.tasks[task, (Task.OPERATOR, Task.DEVICE, Task.ROW_FIRST, Task.ROW_LAST)].tolist()
        groups[buffer, left, right, *unit].append((first, last, task))
    for (buffer, *_), parts in groups.items():
        parts.sort()
        reached, before = 0, parts[0][2]
        for first, last, task in parts:
            if first != reached:
                what = "not read" if first > reached else "read twice"
                found(
                    f"tokens {min(first, reached)} to {max(first, reached)} of it are {what}",
                    view.item("buffer", buffer),
                    view.item("task", before),
                    view.item("task", task),
                )
            reached, before = max(last, reached), task
        if reached < most:
            found(
                f"tokens {reached} to {most} of it are not read",
                view.item("buffer", buffer),
                view.item("task", before),
            )
