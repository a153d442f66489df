"""Every fault of the wire: the handoff ends once on both sides, blocks and slot come back, the next one works."""

import asyncio

import numpy as np
import pytest

from tests.tilert_connector.pair import CAPACITY, Pair, pair
from tilert_connector import HandoffFailed, HandoffTimeout, ReceiverConfig
from tilert_connector.config import ConnectorConfig
from tilert_connector.tracker import Chunk, Step
from tilert_connector.transport import Fault

QUICK = ConnectorConfig(frame_bytes=4096, hold_s=0.6, handoff_s=5.0)


async def works_again(both: Pair) -> None:
    both.slot(0)[:] = 0
    both.prefill("next", 33, [9, 8, 7], seed=9)
    held = await both.receiver.committed("h-next", 10)
    assert np.array_equal(both.slot(0), both.model.expected(33, CAPACITY, seed=9))
    await both.reported("next")
    both.receiver.release(held)


@pytest.mark.contract("H5", "H8")
@pytest.mark.parametrize("frame", [0, 2])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.CORRUPT, "checksum of frame"),
        (Fault.TRUNCATE, "closed by the prefill node"),
        (Fault.DIE, "closed by the prefill node|data connection lost"),
        (Fault.REORDER, "frame number"),
        (Fault.DROP, "frame number|deadline passed"),
    ],
)
async def test_a_damaged_handoff_fails_and_says_why(fault: Fault, reason: str, frame: int) -> None:
    async with pair("gqa", "fake", sender=QUICK) as both:
        both.wire.fault(fault, frame)
        both.prefill("r", 100, list(range(7)))
        with pytest.raises(HandoffFailed, match=reason):
            await both.receiver.committed("h-r", 10)
        await both.reported("r")
        assert both.receiver.status()["ended"]["failed"] == 1
        await works_again(both)


@pytest.mark.contract("H5", "H6")
async def test_a_stall_ends_by_the_deadline_for_held_blocks() -> None:
    async with pair("gqa", "fake", sender=QUICK) as both:
        both.wire.fault(Fault.STALL, 1)
        both.prefill("r", 100, list(range(7)))
        await both.reported("r")
        with pytest.raises(HandoffFailed, match="withdrawn by the prefill node: deadline passed"):
            await both.receiver.committed("h-r", 10)
        await works_again(both)


@pytest.mark.contract("H2")
async def test_a_delay_only_delays() -> None:
    async with pair("gqa", "fake") as both:
        both.wire.fault(Fault.DELAY, 1)
        both.prefill("r", 100, list(range(7)))
        with pytest.raises(HandoffTimeout, match="being written"):
            await both.receiver.committed("h-r", 0.2)
        both.wire.go_on()
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(100, CAPACITY))
        await both.reported("r")
        both.receiver.release(held)


@pytest.mark.contract("H5")
async def test_the_decode_node_has_timers_of_its_own() -> None:
    async with pair("gqa", "fake", receiver=ReceiverConfig(handoff_s=0.3)) as both:
        both.wire.fault(Fault.STALL, 1)
        both.prefill("r", 100, list(range(7)))
        with pytest.raises(HandoffFailed, match=r"it was not written in time \(0\.3 s\)"):
            await both.receiver.committed("h-r", 10)
        await both.reported("r")  # the sender is told
        await works_again(both)


@pytest.mark.contract("H4", "H5")
@pytest.mark.parametrize("transport", ["tcp", "fake"])
async def test_cancelling_in_the_middle_stops_the_writer_and_frees_the_slot(transport: str) -> None:
    async with pair("gqa", transport) as both:
        both.wire.fault(Fault.STALL, 1)
        opening = both.opening("r", 100)
        chunk = Chunk(request="r", blocks=(0, 1, 2), available=48)
        both.step(Step(openings=(opening,), chunks=(chunk,)), lambda: both.model.prefill([0, 1, 2], 0, 48))
        waiting = asyncio.create_task(both.receiver.committed("h-r", 10))
        await asyncio.sleep(0.1)
        assert await both.receiver.cancel("h-r", "the client left")
        with pytest.raises(HandoffFailed, match="the client left"):
            await waiting
        assert both.receiver.status()["slots_held"] == {}
        assert not await both.receiver.cancel("h-r", "again")
        both.finish("r")
        await both.reported("r")
        await works_again(both)
