"""A sender and a receiver in one process, over tcp or the fake wire, on a numpy paged model."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from tests.tilert_connector.paged_model import PagedModel, fingerprint
from tilert_connector import Receiver, ReceiverConfig
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.layout import Fingerprint
from tilert_connector.layout.views import Bytes
from tilert_connector.sender import Sender
from tilert_connector.tracker import Chunk, Finish, Opening, Step
from tilert_connector.transport import (
    Carrier,
    FakeCarrier,
    FakeSink,
    FakeWire,
    allocate_slots,
    open_carriers,
    open_sink,
)

CAPACITY = 200


class Pair:
    """One decode node with `slots` slots, one prefill node with `ranks` workers."""

    def __init__(
        self,
        model: PagedModel,
        transport: str,
        slots: int,
        receiver: ReceiverConfig,
        sender: ConnectorConfig,
        mark: Fingerprint,
    ) -> None:
        self.model = model
        kind = "tcp" if transport == "fake" else transport
        self.memory: Any = allocate_slots(kind, slots, model.layout.slot_bytes(CAPACITY))
        self.slots = [slot.array for slot in self.memory]
        self.wire = FakeWire()
        self.mark = mark
        views = [memoryview(slot.data) for slot in self.slots]
        self.sink: Any = (
            FakeSink(self.wire, model.layout, views, CAPACITY)
            if transport == "fake"
            else open_sink(transport, model.layout, self.memory, CAPACITY, "127.0.0.1")
        )
        real = open_carriers(model.layout, [])

        def carriers(name: str) -> Carrier:
            return FakeCarrier(self.wire) if name == "fake" else real(name)

        self.receiver = Receiver(receiver, model.layout, mark, views, CAPACITY, self.sink)
        self.senders = [Sender(sender, rank, mark, exporter, carriers) for rank, exporter in enumerate(model.exporters)]

    def claim(self, handoff: str) -> Claim:
        return Claim(host="127.0.0.1", ctrl_port=self.receiver.ctrl_port, handoff=handoff)

    def opening(self, request: str, tokens: int, prompt: Sequence[int] = (), salt: str = "") -> Opening:
        told = np.asarray(prompt, "<u4").tobytes()
        return Opening(request=request, claim=self.claim(f"h-{request}"), tokens=tokens, prompt=told, salt=salt)

    def step(self, step: Step, run: Callable[[], None] = lambda: None) -> None:
        """One engine step on every rank; `run` computes."""
        for sender in self.senders:
            sender.begin(step)
        run()
        for sender in self.senders:
            sender.advance(step)

    def prefill(self, request: str, tokens: int, blocks: list[int], seed: int = 0) -> None:
        """The whole prompt in one step, and the end of the request in the next."""
        opening = self.opening(request, tokens)
        chunk = Chunk(request=request, blocks=tuple(blocks), available=tokens)
        self.step(Step(openings=(opening,), chunks=(chunk,)), lambda: self.model.prefill(blocks, 0, tokens, seed))
        self.finish(request)

    def finish(self, request: str, completed: bool = True) -> None:
        self.step(Step(finished=(Finish(request=request, completed=completed, delayed=True),)))

    async def reported(self, request: str, within: float = 10.0) -> None:
        """Wait until every rank has reported the request, each exactly once."""
        start, missing = time.monotonic(), set(range(len(self.senders)))
        while missing:
            for rank, sender in enumerate(self.senders):
                ended = sender.take_finished()
                assert ended <= {request}
                if ended:
                    assert rank in missing
                    missing.discard(rank)
            assert time.monotonic() - start < within, "blocks are still held"
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        assert not any(sender.take_finished() for sender in self.senders)

    def slot(self, number: int) -> Bytes:
        return self.slots[number]

    async def close(self) -> None:
        for sender in self.senders:
            await asyncio.to_thread(sender.close)
        await self.receiver.close()


@asynccontextmanager
async def pair(
    family: str = "mla",
    transport: str = "tcp",
    slots: int = 1,
    block_size: int = 16,
    ranks: int = 1,
    receiver: ReceiverConfig | None = None,
    sender: ConnectorConfig | None = None,
    mark: Fingerprint | None = None,
) -> AsyncIterator[Pair]:
    model = PagedModel(family, block_size, blocks=64, ranks=ranks)
    receiver = receiver or ReceiverConfig()
    # Small frames, so that even these small states take many.
    sender = sender or ConnectorConfig(frame_bytes=4096)
    both = Pair(model, transport, slots, receiver, sender, mark or fingerprint())
    await both.receiver.start()
    try:
        yield both
    finally:
        await both.close()


async def until(condition: Callable[[], bool], within: float = 10.0) -> None:
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)
