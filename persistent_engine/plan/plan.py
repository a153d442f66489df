"""Plan: the compiled schedule of one decode step, as tables and a short manifest.

Invariant: equal plans have equal bytes, and the content hash covers every byte that a runtime acts on.
"""

import dataclasses
import hashlib

import msgspec
import numpy as np

from persistent_engine.plan.records import Arg, BufferRow, Device, Event, Task, Wait, Worker

__all__ = ["TABLES", "Manifest", "Plan", "Table"]

Table = np.ndarray

TABLES: dict[str, tuple[str, int]] = {
    "devices": ("<i4", Device.WIDTH),
    "buffers": ("<i4", BufferRow.WIDTH),
    "events": ("<i4", Event.WIDTH),
    "workers": ("<i4", Worker.WIDTH),
    "tasks": ("<i4", Task.WIDTH),
    "waits": ("<i4", Wait.WIDTH),
    "signals": ("<i4", 1),
    "args": ("<i4", Arg.WIDTH),
    "params": ("<f8", 1),
}
"""Name, dtype and row width of every table, in the order in which they are written and hashed."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tables cannot say in numbers.

    model: architecture name. device: profile it was compiled for. operators: names, by the number that tasks
    carry. names: of devices, buffers, events and labels. weights: buffer name -> tensor names, stacked by rows.
    capacity: most tokens of state that a slot may hold. limits: model facts that the runtime checks at load.
    origins: of buffers that are a part of a larger array, the row and column of it at which they begin.
    bucket: fewest and most tokens of state, the new one included, for which the plan's dynamic counts hold.
    """

    model: str
    device: str
    capacity: int
    operators: tuple[str, ...]
    names: tuple[str, ...]
    weights: dict[str, tuple[str, ...]]
    limits: dict[str, int]
    bucket: tuple[int, int]
    origins: dict[str, tuple[int, int]] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Tables (see `records` for their columns; shapes [n, width]) and manifest."""

    manifest: Manifest
    devices: Table
    buffers: Table
    events: Table
    workers: Table
    tasks: Table
    waits: Table
    signals: Table
    args: Table
    params: Table

    def table_bytes(self, name: str) -> bytes:
        """Little-endian C-order bytes of one table."""
        dtype, width = TABLES[name]
        return np.ascontiguousarray(getattr(self, name), dtype=dtype).reshape(-1, width).tobytes()

    @property
    def digest(self) -> str:
        """SHA-256 over the manifest and all tables, hexadecimal."""
        digest = hashlib.sha256(msgspec.msgpack.encode(self.manifest, order="sorted"))
        for name in TABLES:
            data = self.table_bytes(name)
            digest.update(f"{name}:{len(data)}:".encode())
            digest.update(data)
        return digest.hexdigest()
