"""A data plane within one process whose faults come on cue: for tests and for whoever builds on the seam.

Invariant: without a fault it keeps every promise of `base`, through the same `Landing` as the real ones.
"""

import asyncio
import enum
import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.transport.base import Endpoint, Grant, Report
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.frame import Frame, pack_header
from tilert_connector.transport.landing import Landing

__all__ = ["FakeCarrier", "FakeSink", "FakeWire", "FakeWriter", "Fault"]


class Fault(enum.Enum):
    """What happens to one frame."""

    DROP = "drop"
    """It vanishes; the writer never hears of it."""
    DELAY = "delay"
    """It lands, and all behind it, only after `FakeWire.go_on`."""
    REORDER = "reorder"
    """It arrives after the next frame."""
    CORRUPT = "corrupt"
    """One byte arrives changed."""
    TRUNCATE = "truncate"
    """Its first half arrives, then the connection is lost."""
    STALL = "stall"
    """Nothing moves any more, and nobody says so."""
    DIE = "die"
    """The connection is lost before it."""


class FakeWire:
    """Connects sinks and writers by port number, and keeps the faults to come."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sinks: dict[int, FakeSink] = {}
        self.frames = 0
        self._faults: dict[int, Fault] = {}
        self._delayed = False

    def fault(self, fault: Fault, frame: int = 0) -> None:
        """Let this happen to the frame that is `frame` frames away from now, counted over all writers."""
        with self.lock:
            self._faults[self.frames + frame] = fault

    def go_on(self) -> None:
        """End a delay."""
        with self.lock:
            self._delayed = False

    def next_fault(self) -> Fault | None:
        """The fault of the frame that is sent now."""
        with self.lock:
            fault = self._faults.pop(self.frames, None)
            self.frames += 1
            self._delayed = self._delayed or fault is Fault.DELAY
            return fault

    @property
    def delayed(self) -> bool:
        """Whether a delay goes on."""
        return self._delayed


class FakeSink:
    """`slots`: writable memory of `layout.slot_bytes(capacity)` bytes each."""

    late = False

    def __init__(self, wire: FakeWire, layout: KvLayout, slots: Sequence[memoryview], capacity: int) -> None:
        self._wire = wire
        self._layout = layout
        self._memories = [np.frombuffer(slot, np.uint8) for slot in slots]
        self._capacity = capacity
        self._port = self._losses = 0
        self._grants: dict[int, tuple[Landing, Callable[[Report], None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        with self._wire.lock:
            self._port = len(self._wire.sinks) + 1
            self._wire.sinks[self._port] = self

    def describe(self) -> Endpoint:
        return Endpoint(transport="fake", host="fake", port=self._port)

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> None:
        landing = Landing(grant, self._layout, self._memories[grant.slot], self._capacity)
        with self._wire.lock:
            self._grants[grant.generation] = landing, report

    async def revoke(self, generation: int, timeout_s: float) -> bool:
        with self._wire.lock:
            self._grants.pop(generation, None)
        return True

    def content(self, slot: int) -> bytes:
        return bytes(self._losses)

    def lose(self) -> None:
        """As if a revocation had cost every slot what it held."""
        self._losses += 1

    async def close(self) -> None:
        with self._wire.lock:
            self._grants.clear()
            self._wire.sinks.pop(self._port, None)

    def attach(self, generation: int, key: bytes) -> None:
        """Raises WireError unless a live grant has this key."""
        with self._wire.lock:
            entry = self._grants.get(generation)
            if entry is None or entry[0].grant.key != key:
                raise WireError("closed by the decode node: no such grant")

    def arrive(self, index: int, generation: int, frame: Frame, data: bytes, checksum: int) -> None:
        """Land one frame. Raises WireError, after the report, if it must not or does not fit."""
        with self._wire.lock:
            entry = self._grants.get(generation)
            if entry is None:
                raise WireError("closed by the decode node: no such grant")
            landing, report = entry
            try:
                views = landing.views(index, generation, frame)
                position = 0
                for view in views:
                    part = np.frombuffer(data, np.uint8, min(view.size, len(data) - position), position)
                    if part.size < view.size:
                        raise WireError("data connection closed by the prefill node before all had landed")
                    view[...] = part.reshape(view.shape)
                    position += view.size
                landing.landed(frame, views, checksum)
            except WireError as error:
                self._tell(landing, report, str(error))
                raise
            if landing.complete:
                self._tell(landing, report, "")

    def lost(self, generation: int) -> None:
        """The writer's connection is gone."""
        with self._wire.lock:
            entry = self._grants.get(generation)
            if entry is not None:
                self._tell(*entry, "data connection closed by the prefill node before all had landed")

    def _tell(self, landing: Landing, report: Callable[[Report], None], reason: str) -> None:
        self._grants.pop(landing.grant.generation, None)
        result = Report(
            generation=landing.grant.generation,
            landed=landing.complete,
            landed_bytes=landing.landed_bytes,
            reason=reason,
        )
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(report, result)


class FakeCarrier:
    """Opens writers on the wire's sinks."""

    def __init__(self, wire: FakeWire) -> None:
        self._wire = wire

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> "FakeWriter":
        sink = self._wire.sinks.get(endpoint.port)
        if sink is None:
            raise WireError(f"cannot connect to fake port {endpoint.port}: nobody listens")
        return FakeWriter(self._wire, sink, generation, key)

    def close(self) -> None:
        """Nothing is left open."""


class FakeWriter:
    """Sends one posted frame per `progress`."""

    def __init__(self, wire: FakeWire, sink: FakeSink, generation: int, key: bytes) -> None:
        self._wire = wire
        self._sink = sink
        self._generation = generation
        self._key = key
        self._attached = False
        self._stalled = False
        self._posted = 0
        self._completed = 0
        self._out: deque[tuple[int, Frame, Sequence[memoryview], int]] = deque()
        self._late: tuple[int, Frame, bytes, int] | None = None

    def room(self) -> bool:
        return len(self._out) < 2

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        digest = begin_checksum(pack_header(self._posted, self._generation, frame))
        for piece in pieces:
            digest.update(piece.cast("B"))
        self._out.append((self._posted, frame, pieces, digest.intdigest()))
        self._posted += 1

    def progress(self) -> None:
        if not self._attached:
            self._sink.attach(self._generation, self._key)
            self._attached = True
        if self._stalled or self._wire.delayed or not self._out:
            return
        fault = self._wire.next_fault()
        if fault is Fault.DELAY:
            return
        index, frame, pieces, checksum = self._out.popleft()
        data = b"".join(pieces)
        if fault is None:
            self._arrive(index, frame, data, checksum)
            if self._late is not None:
                late, self._late = self._late, None
                self._arrive(*late)
        elif fault is Fault.REORDER:
            self._late = index, frame, data, checksum
        elif fault is Fault.STALL:
            self._stalled = True
        else:
            self._break(fault, index, frame, data, checksum)

    def _break(self, fault: Fault, index: int, frame: Frame, data: bytes, checksum: int) -> None:
        if fault is Fault.CORRUPT:
            self._arrive(index, frame, bytes([data[0] ^ 1]) + data[1:], checksum)
        elif fault is Fault.TRUNCATE:
            self._arrive(index, frame, data[: len(data) // 2], checksum)
        elif fault is Fault.DIE:
            self._sink.lost(self._generation)
            raise WireError("data connection lost")

    def _arrive(self, index: int, frame: Frame, data: bytes, checksum: int) -> None:
        self._sink.arrive(index, self._generation, frame, data, checksum)
        self._completed += 1

    def completed(self) -> int:
        return self._completed

    def interest(self) -> tuple[int, bool, bool] | None:
        return None

    def close(self) -> None:
        self._out.clear()
        self._late = None
        if self._attached:
            self._sink.lost(self._generation)
