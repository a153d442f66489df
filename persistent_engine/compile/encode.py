"""Pass `encode`: tasks, schedule and buffers as the tables of a plan.

Output spec: tasks are sorted by worker, in the assignment's order within one; same input, same bytes.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.compile.assign import Assignment
from persistent_engine.compile.comm import LocalBuffer
from persistent_engine.compile.events import Schedule
from persistent_engine.compile.pages import Pages
from persistent_engine.compile.place import Placement
from persistent_engine.compile.tile import Piece
from persistent_engine.manifest import OPERATORS, number
from persistent_engine.plan import TABLES, BufferKind, Manifest, Plan

__all__ = ["encode_tables"]


class _Names:
    """Interned strings of the manifest."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


class _Tables:
    """Rows under construction."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Sequence[float]]] = {name: [] for name in TABLES}

    def extend(self, table: str, rows: Sequence[Sequence[float]]) -> tuple[int, int]:
        """Append rows; gives (first, count)."""
        first = len(self.rows[table])
        self.rows[table].extend(rows)
        return first, len(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            name: np.array(self.rows[name], dtype=dtype).reshape(-1, width) for name, (dtype, width) in TABLES.items()
        }


def _buffers(tables: _Tables, names: _Names, buffers: list[LocalBuffer], pages: Pages) -> dict[tuple[str, int], int]:
    """Rows of `buffers`; gives their numbers."""
    for local in buffers:
        shape = (local.buffer.kind, local.buffer.dtype, local.rows, local.cols)
        place = pages.places.get((local.buffer.name, local.device), (0, 0))
        tables.extend("buffers", [(*shape, names(local.name), local.device, *place)])
    return {(local.buffer.name, local.device): at for at, local in enumerate(buffers)}


def encode_tables(
    placement: Placement,
    pieces: list[Piece],
    buffers: list[LocalBuffer],
    assignment: Assignment,
    schedule: Schedule,
    pages: Pages,
    facts: tuple[str, str, int],
    limits: dict[str, int],
) -> Plan:
    """The plan. facts: model, machine, capacity."""
    names, tables = _Names(), _Tables()
    model, machine, capacity = facts
    for device, role in enumerate(placement.roles):
        name = machine if len(placement.roles) == 1 else f"{machine}:{device}"
        tables.extend("devices", [(role, pages.totals.get(device, 0), names(name))])
    numbers = _buffers(tables, names, buffers, pages)
    counts = [sum(pieces[member].tiles for member in event.members) for event in schedule.events]
    for event, count in zip(schedule.events, counts, strict=True):
        tables.extend("events", [(count, names(event.name), event.device)])
    queues: list[list[int]] = [[] for _ in assignment.workers]
    for task in assignment.order:
        queues[assignment.owner[task]].append(task)
    for worker, (spec, queue) in enumerate(zip(assignment.workers, queues, strict=True)):
        first = len(tables.rows["tasks"])
        for task in queue:
            piece = pieces[task]
            waits = tables.extend("waits", [(event, counts[event], 0) for event in schedule.waits[task]])
            signals = tables.extend("signals", [(event,) for event in schedule.signals[task]])
            args = tables.extend(
                "args", [(numbers[r.buffer, r.device], r.access, *r.rows, *r.cols) for r in piece.regions]
            )
            params = tables.extend("params", [(value,) for value in piece.params])
            row = (number(piece.operator), worker, *waits, *signals, *args, *params, *piece.rows)
            tables.extend("tasks", [(*row, names(piece.label), piece.layer, piece.device, piece.tiles)])
        tables.extend("workers", [(spec.device, first, len(queue), spec.role, spec.lanes)])
    manifest = Manifest(
        model=model,
        device=machine,
        capacity=capacity,
        operators=tuple(operator.name for operator in OPERATORS),
        names=tuple(names.numbers),
        weights={local.name: local.buffer.sources for local in buffers if local.buffer.kind == BufferKind.WEIGHT},
        limits=limits,
        bucket=(1, capacity),
        origins={local.name: local.origin for local in buffers if local.is_part},
    )
    return Plan(manifest, **tables.arrays())
