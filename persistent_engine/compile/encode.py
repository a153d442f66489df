"""Pass `encode`: tasks, schedule and buffers as the tables of a plan.

Output spec: tasks are sorted by worker, in graph order within one; same input, same bytes.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.compile.events import Schedule
from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.compile.tile import Piece
from persistent_engine.manifest import OPERATORS, number
from persistent_engine.models import Graph
from persistent_engine.plan import TABLES, Manifest, Plan, Role, WarpRole

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


def encode_tables(
    graph: Graph, pieces: list[Piece], schedule: Schedule, profile: DeviceProfile, limits: dict[str, int]
) -> Plan:
    """The plan."""
    names, tables = _Names(), _Tables()
    tables.extend("devices", [(Role.MLA, 0, names("cpu"))])
    buffer_numbers = {name: index for index, name in enumerate(graph.buffers)}
    for buffer in graph.buffers.values():
        tables.extend("buffers", [(buffer.kind, buffer.dtype, buffer.rows, buffer.cols, names(buffer.name), 0, 0, 0)])
    for name, count in schedule.events:
        tables.extend("events", [(count, names(name), 0)])
    for worker in range(profile.workers):
        queue = [task for task, owner in enumerate(schedule.workers) if owner == worker]
        first = len(tables.rows["tasks"])
        for task in queue:
            piece, node = pieces[task], graph.nodes[pieces[task].node]
            waits = tables.extend("waits", [(event, schedule.events[event][1], 0) for event in schedule.waits[task]])
            signals = tables.extend("signals", [(event,) for event in schedule.signals[task]])
            args = tables.extend(
                "args", [(buffer_numbers[r.buffer], r.access, *r.rows, *r.cols) for r in piece.regions]
            )
            params = tables.extend("params", [(value,) for value in node.params])
            row = (number(node.operator), worker, *waits, *signals, *args, *params, *piece.rows)
            tables.extend("tasks", [(*row, names(node.label), node.layer, 0, 1)])
        tables.extend("workers", [(0, first, len(queue), WarpRole.ALL, 1)])
    manifest = Manifest(
        model=graph.model,
        device=profile.name,
        capacity=graph.capacity,
        operators=tuple(operator.name for operator in OPERATORS),
        names=tuple(names.numbers),
        weights={buffer.name: buffer.sources for buffer in graph.buffers.values() if buffer.sources},
        limits=limits,
        bucket=(1, graph.capacity),
    )
    return Plan(manifest, **tables.arrays())
