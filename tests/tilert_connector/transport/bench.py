"""One sink and one writer of a back end, driven by hand."""

import asyncio
import functools
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from tilert_connector.errors import WireError
from tilert_connector.layout import KvLayout, gqa_layout
from tilert_connector.layout.views import plane_views
from tilert_connector.transport import (
    Carrier,
    FakeCarrier,
    FakeSink,
    FakeWire,
    Frame,
    Grant,
    Report,
    Sink,
    SlotPages,
    Writer,
    cut_frames,
    open_carriers,
    open_sink,
)
from tilert_connector.transport.engine import Engine, EngineMissing
from tilert_connector.transport.engine_carrier import EngineCarrier
from tilert_connector.transport.engine_sink import EngineSink
from tilert_connector.transport.mooncake_engine import MooncakeEngine
from tilert_connector.transport.nixl_engine import NixlEngine

LAYOUT: KvLayout = gqa_layout([0, 1], 4, 2, 8, 16)
CAPACITY = 64
Ranges = tuple[tuple[int, int], ...]
PLANES: Ranges = ((0, len(LAYOUT.planes)),)


class KeptEngine:
    """Outlives the sinks and carriers that use it, one after another: making one takes up to a second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._addresses: set[int] = set()
        self.patience_s = min(engine.patience_s, 2.0)
        self.name, self.meet, self.write, self.poll = engine.name, engine.meet, engine.write, engine.poll

    def register(self, address: int, size: int) -> None:
        self._engine.register(address, size)
        self._addresses.add(address)

    def forget(self, address: int) -> None:
        self._addresses.discard(address)
        self._engine.forget(address)

    def close(self) -> None:
        for address in list(self._addresses):
            self.forget(address)


ENGINES: dict[str, Callable[[], Engine]] = {"nixl": NixlEngine, "mooncake": lambda: MooncakeEngine("127.0.0.1")}


@functools.cache
def _made(transport: str, end: str) -> KeptEngine | str:
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
    try:
        return KeptEngine(ENGINES[transport]())
    except EngineMissing as error:
        return str(error)


def engine(transport: str, end: str) -> KeptEngine:
    """This process's engine for one end of all its tests; skips the test, with the reason, where there is none."""
    made = _made(transport, end)
    if isinstance(made, str):
        pytest.skip(made)
    return made


class Bench:
    """A sink with two slots."""

    def __init__(self, transport: str) -> None:
        size = LAYOUT.slot_bytes(CAPACITY)
        pages = [SlotPages(size) for _ in range(2)]
        self.slots = [slot.array for slot in pages]
        views = [memoryview(slot.data) for slot in self.slots]
        self.wire = FakeWire()
        self.engines: list[KeptEngine] = []
        self.sink: Sink
        self.carrier: Carrier
        self.source = np.random.default_rng(1).integers(0, 256, size, np.uint8)
        if transport == "fake":
            self.sink, self.carrier = FakeSink(self.wire, LAYOUT, views, CAPACITY), FakeCarrier(self.wire)
        elif transport in ENGINES:
            far, near = self.engines = [engine(transport, end) for end in ("sink", "carrier")]
            self.sink = EngineSink(transport, lambda: far, LAYOUT, pages, CAPACITY, "127.0.0.1")
            self.carrier = EngineCarrier(lambda: near, LAYOUT, [self.source])
        else:
            self.sink = open_sink(transport, LAYOUT, pages, CAPACITY, "127.0.0.1")
            self.carrier = open_carriers(LAYOUT, [self.source])(transport)
        self.reports: list[Report] = []
        self.writers: list[Writer] = []

    def grant(
        self, generation: int = 1, tokens: int = 40, slot: int = 0, held: int = 0, planes: Ranges = PLANES
    ) -> Grant:
        """Admitted at once."""
        grant = Grant(
            handoff="h",
            rank=0,
            generation=generation,
            key=secrets.token_bytes(16),
            slot=slot,
            tokens=tokens,
            planes=planes,
            held=held,
        )
        self.sink.admit(grant, self.reports.append)
        return grant

    def writer(self, grant: Grant, key: bytes | None = None, generation: int | None = None) -> Writer:
        writer = self.carrier.open(
            self.sink.describe(),
            generation or grant.generation,
            grant.key if key is None else key,
        )
        self.writers.append(writer)
        return writer

    def pieces(self, frame: Frame) -> list[memoryview]:
        offsets = LAYOUT.offsets(CAPACITY)
        return [
            memoryview(np.ascontiguousarray(view).reshape(-1).data)
            for index in range(frame.plane_first, frame.plane_last)
            for view in plane_views(self.source[offsets[index] :], LAYOUT.planes[index], frame.first, frame.last)
        ]

    def frames(self, first: int, last: int, limit: int = 512, planes: Ranges = PLANES) -> list[Frame]:
        return list(cut_frames(LAYOUT, planes, first, last, limit))

    async def drive(self, writer: Writer, until: Callable[[], bool], within: float = 5.0) -> None:
        """Progress until the condition holds. Raises what the writer raises."""
        deadline = time.monotonic() + within
        while not until():
            writer.progress()
            assert time.monotonic() < deadline, "no progress"
            await asyncio.sleep(0.001)

    async def send(self, writer: Writer, frames: list[Frame]) -> None:
        """Write these frames and wait until all are confirmed."""
        target = writer.completed() + len(frames)
        for frame in frames:
            await self.drive(writer, writer.room)
            writer.write(frame, self.pieces(frame))
        await self.drive(writer, lambda: writer.completed() == target)

    async def refused(self, writer: Writer, frames: list[Frame]) -> str:
        """The writer's error; nothing else is accepted."""
        try:
            await self.send(writer, frames)
        except WireError as error:
            return str(error)
        raise AssertionError("the writer was not refused")

    async def reported(self, within: float = 5.0) -> Report:
        deadline = time.monotonic() + within
        while not self.reports:
            assert time.monotonic() < deadline, "no report"
            await asyncio.sleep(0.001)
        return self.reports.pop(0)

    def landed(self, tokens: int, slot: int = 0) -> NDArray[np.bool_]:
        """For each plane, whether tokens [0, tokens) are the source's."""
        offsets = LAYOUT.offsets(CAPACITY)

        def read(memory: NDArray[np.uint8], index: int) -> bytes:
            views = plane_views(memory[offsets[index] :], LAYOUT.planes[index], 0, tokens)
            return b"".join(view.tobytes() for view in views)

        count = len(LAYOUT.planes)
        return np.array([read(self.slots[slot], i) == read(self.source, i) for i in range(count)])


@asynccontextmanager
async def bench(transport: str) -> AsyncIterator[Bench]:
    made = Bench(transport)
    await made.sink.start()
    try:
        yield made
    finally:
        for writer in made.writers:
            writer.close()
        made.carrier.close()
        await made.sink.close()
        for kept in made.engines:
            kept.close()
