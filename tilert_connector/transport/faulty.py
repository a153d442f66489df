"""Faults on cue over a real transport, also between processes: for tests, and for whoever builds on the seam.

Invariant: without a cue every call goes to the real writer unchanged, so what holds here holds there.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.transport.base import Carrier, Carriers, Endpoint, Writer
from tilert_connector.transport.fake import Fault
from tilert_connector.transport.frame import Frame

__all__ = ["FaultyCarriers"]

DELAY_S = 0.3


class FaultyCarriers:
    """`Carriers` whose writers misbehave on cue. Frames are counted over all writers."""

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._lock = threading.Lock()
        self._frames = 0
        self._faults: dict[int, Fault] = {}

    def __call__(self, name: str) -> Carrier:
        return _FaultyCarrier(self._carriers(name), self, corrupts=name == "tcp")

    def fault(self, fault: Fault, frame: int = 0) -> None:
        """Let this happen to the frame that is `frame` frames away from now."""
        with self._lock:
            self._faults[self._frames + frame] = fault

    def clear(self) -> None:
        """Forget the faults to come."""
        with self._lock:
            self._faults.clear()

    def next_fault(self) -> Fault | None:
        """The fault of the frame that is written now."""
        with self._lock:
            self._frames += 1
            return self._faults.pop(self._frames - 1, None)


class _FaultyCarrier:
    def __init__(self, carrier: Carrier, cues: FaultyCarriers, corrupts: bool) -> None:
        self._carrier, self._cues, self._corrupts = carrier, cues, corrupts

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> Writer:
        return _FaultyWriter(self._carrier.open(endpoint, generation, key), self._cues, self._corrupts)

    def close(self) -> None:
        self._carrier.close()


class _FaultyWriter:
    """DROP: the frame is never written, the next one leaves a gap. CORRUPT: a byte is changed after its checksum was
    taken; a transport that takes it while it moves the bytes leaves no time for that and loses its connection."""

    def __init__(self, writer: Writer, cues: FaultyCarriers, corrupts: bool) -> None:
        self._writer, self._cues, self._corrupts = writer, cues, corrupts
        self._late: deque[tuple[Frame, Sequence[memoryview]]] = deque()
        self._until = 0.0
        self._stalled = self._dead = False
        self._posted = 0

    def room(self) -> bool:
        return self._writer.room() and not (self._stalled or self._dead)

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        fault = self._cues.next_fault()
        if fault is Fault.DROP:
            return
        if fault is Fault.REORDER:
            self._late.append((frame, pieces))
            return
        if fault is Fault.CORRUPT and self._corrupts:
            copy = np.concatenate([np.frombuffer(piece, np.uint8) for piece in pieces])
            self._writer.write(frame, [memoryview(copy.data)])
            copy[len(copy) // 2] ^= 1
            return
        self._writer.write(frame, pieces)
        if self._late and self._writer.room():
            self._writer.write(*self._late.popleft())
        self._dead = self._dead or fault in (Fault.DIE, Fault.TRUNCATE, Fault.CORRUPT)
        self._stalled = self._stalled or fault is Fault.STALL
        if fault is Fault.TRUNCATE:
            self._writer.progress()
        if fault is Fault.DELAY:
            self._until = time.monotonic() + DELAY_S

    def progress(self) -> None:
        if self._dead:
            self._writer.close()
            raise WireError("data connection lost")
        if not self._stalled and time.monotonic() >= self._until:
            self._writer.progress()

    def completed(self) -> int:
        return self._writer.completed()

    def interest(self) -> tuple[int, bool, bool] | None:
        return None if self._stalled or self._until else self._writer.interest()

    def close(self) -> None:
        self._writer.close()
