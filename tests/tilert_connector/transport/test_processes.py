"""What back ends promise when the writer is another process that is stopped, continued or killed."""

import asyncio
import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.tilert_connector.transport.bench import ENGINES, engine
from tests.tilert_connector.transport.writer_process import FRAME, LAYOUT, TOKENS, WriterProcess, filled, pieces
from tilert_connector.transport import (
    EngineSink,
    Grant,
    Report,
    Sink,
    SlotPages,
    cut_frames,
    open_carriers,
    open_sink,
)

pytestmark = pytest.mark.parametrize("transport", ["shm", "tcp", "nixl", "mooncake"])


class Two:
    """A sink with one slot, and a writer in another process."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.slot = SlotPages(LAYOUT.slot_bytes(TOKENS))
        self.sink: Sink
        if transport in ENGINES:
            far = engine(transport, "sink")
            self.sink = EngineSink(transport, lambda: far, LAYOUT, [self.slot], TOKENS, "127.0.0.1")
        else:
            self.sink = open_sink(transport, LAYOUT, [self.slot], TOKENS, "127.0.0.1")
        self.reports: list[Report] = []
        self.writer = WriterProcess(transport, 7)

    def grant(self, generation: int, handoff: str) -> Grant:
        planes = ((0, len(LAYOUT.planes)),)
        key = secrets.token_bytes(16)
        grant = Grant(handoff=handoff, rank=0, generation=generation, key=key, slot=0, tokens=TOKENS, planes=planes)
        self.sink.admit(grant, self.reports.append)
        return grant

    async def begun(self) -> None:
        """The other process has written half of it, and has a write at hand."""
        await asyncio.to_thread(self.writer.hear)
        grant = self.grant(1, "a")
        self.writer.go(self.sink.describe(), grant)
        assert await asyncio.to_thread(self.writer.hear) == "half"
        assert self.slot.array[0] == 7

    async def write(self, generation: int, value: int) -> None:
        """A whole handoff from this process."""
        source = filled(value)
        carrier = open_carriers(LAYOUT, [source])(self.transport)
        grant = self.grant(generation, "b")
        writer = carrier.open(self.sink.describe(), generation, grant.key)
        frames = list(cut_frames(LAYOUT, grant.planes, 0, TOKENS, FRAME))
        deadline = time.monotonic() + 30
        for frame in frames:
            while not writer.room():
                writer.progress()
                assert time.monotonic() < deadline
                await asyncio.sleep(0.0002)
            writer.write(frame, pieces(source, frame))
        while writer.completed() < len(frames):
            writer.progress()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.0002)
        writer.close()
        carrier.close()


async def until(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def two(transport: str) -> AsyncIterator[Two]:
    made = Two(transport)
    await made.sink.start()
    try:
        yield made
    finally:
        await asyncio.to_thread(made.writer.close)
        await made.sink.close()


@pytest.mark.contract("H4")
async def test_a_writer_that_was_stopped_in_the_middle_cannot_touch_the_next_handoff(transport: str) -> None:
    async with two(transport) as one:
        await one.begun()
        one.writer.signal(signal.SIGSTOP)
        assert await asyncio.wait_for(one.sink.revoke(1, 2), 3)
        assert not one.reports
        await one.write(2, 9)
        await until(lambda: bool(one.reports))
        assert one.reports[0].landed and one.reports[0].generation == 2
        # Now the other one goes on, and writes for as long as it likes.
        one.writer.go_on()
        one.writer.signal(signal.SIGCONT)
        assert await asyncio.to_thread(one.writer.hear)
        await asyncio.sleep(0.3)
        assert (one.slot.array == 9).all()


@pytest.mark.contract("H5")
async def test_a_killed_writer_is_reported_and_leaves_nothing_behind(transport: str) -> None:
    async with two(transport) as one:
        before = descriptors()
        await one.begun()
        one.writer.signal(signal.SIGKILL)
        await until(lambda: bool(one.reports))
        report = one.reports[0]
        assert not report.landed and report.reason and report.generation == 1
        assert await one.sink.revoke(1, 2)
        await one.write(2, 9)
        await until(lambda: len(one.reports) == 2)
        assert one.reports[1].landed and (one.slot.array == 9).all()
        if transport not in ENGINES:  # those keep connections of their own
            await until(lambda: descriptors() <= before)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("landing")]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
