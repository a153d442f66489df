"""Whatever happens to a peer or a request: the handoff ends, says why, and the blocks come back."""

import asyncio
import socket

import numpy as np
import pytest

from tests.tilert_connector.paged_model import fingerprint
from tests.tilert_connector.pair import CAPACITY, Pair, pair, until
from tilert_connector import HandoffFailed
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.sender import Sender
from tilert_connector.tracker import Chunk, Finish, Opening, Step
from tilert_connector.transport import make_carriers

QUICK = ConnectorConfig(frame_bytes=4096, connect_s=0.3, hold_s=2.0)


def elsewhere(both: Pair, claim: Claim, request: str = "r") -> None:
    """A finished prompt whose claim points to some other address."""
    opening = Opening(request=request, claim=claim, tokens=32)
    chunk = Chunk(request=request, blocks=(0, 1), available=32)
    both.step(Step(openings=(opening,), chunks=(chunk,)))
    both.finish(request)


@pytest.mark.contract("H5", "H6")
async def test_an_unreachable_decode_node_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        async with pair(sender=ConnectorConfig(connect_s=30)) as both:
            elsewhere(both, Claim(host="127.0.0.1", ctrl_port=port, handoff="h"))
            await both.reported("r", within=20)
    assert f"decode node 127.0.0.1:{port} is unreachable" in caplog.text


@pytest.mark.contract("H5", "H6")
async def test_a_decode_node_that_says_nothing_fails_by_its_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with pair(sender=QUICK) as both:
            elsewhere(both, Claim(host="127.0.0.1", ctrl_port=mute.getsockname()[1], handoff="h"))
            await both.reported("r", within=15)
    assert "did not answer within 0.3 s" in caplog.text


@pytest.mark.contract("H9")
@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
async def test_only_configured_networks_are_written_to(host: str, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(sender=QUICK) as both:
        elsewhere(both, Claim(host=host, ctrl_port=9, handoff="h"))
        await both.reported("r")
    assert "outside the networks" in caplog.text or "cannot resolve" in caplog.text


@pytest.mark.contract("H7")
async def test_a_fingerprint_that_differs_is_named_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as both:
        old = both.senders[0]
        await asyncio.to_thread(old.close)
        other = fingerprint(weights="mine")
        both.senders[0] = Sender(QUICK, 0, other, both.model.exporter, make_carriers({}))
        both.prefill("r", 32, [0, 1])
        words = "fingerprint differs in weights: decode node has 'w', prefill node has 'mine'"
        with pytest.raises(HandoffFailed, match=words):
            await both.receiver.committed("h-r", 5)
        await both.reported("r")
        assert words in caplog.text
        assert not both.slot(0).any()
        assert both.receiver.status()["messages"]["refused"] == 1


@pytest.mark.contract("H5", "H6", "H13")
async def test_a_decode_node_that_dies_in_the_middle_holds_no_blocks() -> None:
    async with pair("gqa", sender=QUICK) as both:
        opening, chunk = both.opening("r", 100), Chunk(request="r", blocks=(0, 1, 2), available=48)
        both.step(Step(openings=(opening,), chunks=(chunk,)), lambda: both.model.prefill([0, 1, 2], 0, 48))
        await until(lambda: both.receiver.status()["open"].get("writing") == 1)
        await both.receiver.close()
        both.finish("r")
        await both.reported("r")


@pytest.mark.contract("H5", "H13")
async def test_a_prefill_node_that_leaves_in_the_middle_frees_the_slot() -> None:
    async with pair("gqa") as both:
        opening, chunk = both.opening("r", 100), Chunk(request="r", blocks=(0, 1, 2), available=48)
        both.step(Step(openings=(opening,), chunks=(chunk,)), lambda: both.model.prefill([0, 1, 2], 0, 48))
        await until(lambda: both.receiver.status()["open"].get("writing") == 1)
        await asyncio.to_thread(both.senders[0].close)
        with pytest.raises(HandoffFailed, match="shutting down"):
            await both.receiver.committed("h-r", 5)
        await until(lambda: both.receiver.status()["slots_held"] == {})


@pytest.mark.contract("H5", "H6")
@pytest.mark.parametrize("available", [0, 48, 100])
async def test_an_aborted_request_is_cancelled_and_reported_once(available: int) -> None:
    async with pair("gqa") as both:
        blocks = tuple(range(-(-available // 16)))
        chunks = (Chunk(request="r", blocks=blocks, available=available),) if available else ()
        both.step(Step(openings=(both.opening("r", 101),), chunks=chunks))
        await until(lambda: both.receiver.status()["open"].get("writing") == 1)
        both.finish("r", completed=False)
        await both.reported("r")
        with pytest.raises(HandoffFailed, match="aborted on the prefill node"):
            await both.receiver.committed("h-r", 5)
        await until(lambda: both.receiver.status()["slots_held"] == {})


@pytest.mark.contract("H6")
async def test_an_abort_after_the_commit_changes_nothing() -> None:
    async with pair("gqa") as both:
        chunk = Chunk(request="r", blocks=(0, 1), available=32)
        both.step(
            Step(openings=(both.opening("r", 32),), chunks=(chunk,)),
            lambda: both.model.prefill([0, 1], 0, 32),
        )
        held = await both.receiver.committed("h-r", 5)
        both.finish("r", completed=False)
        await both.reported("r")
        assert np.array_equal(both.slot(0), both.model.expected(32, CAPACITY))
        both.receiver.release(held)


@pytest.mark.contract("H6")
async def test_a_request_preempted_and_then_aborted_is_not_reported() -> None:
    async with pair("gqa") as both:
        chunk = Chunk(request="r", blocks=(0, 1), available=32)
        both.step(Step(openings=(both.opening("r", 64),), chunks=(chunk,)))
        both.step(Step(preempted=("r",)))
        both.step(Step(finished=(Finish(request="r", completed=False, delayed=False),)))
        with pytest.raises(HandoffFailed, match="aborted"):
            await both.receiver.committed("h-r", 5)
        assert both.senders[0].take_finished() == set()


@pytest.mark.contract("H5")
async def test_a_request_that_cannot_be_handed_off_says_so_at_once() -> None:
    async with pair("gqa") as both:
        opening = Opening(request="r", claim=both.claim("h-r"), tokens=9, refusal="the request uses LoRA")
        both.step(Step(openings=(opening,)))
        with pytest.raises(HandoffFailed, match="the request uses LoRA"):
            await both.receiver.committed("h-r", 5)
        assert both.senders[0].take_finished() == set()


@pytest.mark.contract("H5", "H6")
async def test_an_offer_that_is_refused_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with pair("gqa") as both:
        assert await both.receiver.cancel("h-r", "the client left before prefill began")
        both.prefill("r", 32, [0, 1])
        await both.reported("r")
        assert not both.slot(0).any()
    assert "refused by the decode node: this handoff is cancelled already the client left" in caplog.text


@pytest.mark.contract("H11")
async def test_a_dead_decode_node_delays_no_other_and_no_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with pair("gqa", sender=ConnectorConfig(connect_s=20)) as both:
            loop = asyncio.get_running_loop()
            dead = Claim(host="127.0.0.1", ctrl_port=mute.getsockname()[1], handoff="h-dead")
            opening = Opening(request="dead", claim=dead, tokens=32)
            start = loop.time()
            both.step(Step(openings=(opening,), chunks=(Chunk(request="dead", blocks=(5, 6), available=32),)))
            both.prefill("r", 32, [0, 1])
            assert loop.time() - start < 1.0
            held = await both.receiver.committed("h-r", 5)
            await both.reported("r")
            both.receiver.release(held)


async def test_lanes_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with pair(sender=ConnectorConfig(connect_s=20, max_lanes=1)) as both:
            busy = Claim(host="127.0.0.1", ctrl_port=mute.getsockname()[1], handoff="h-busy")
            both.step(Step(openings=(Opening(request="busy", claim=busy, tokens=32),)))
            both.prefill("r", 32, [0, 1])
            await both.reported("r")
    assert "max_lanes" in caplog.text


@pytest.mark.contract("H13")
async def test_an_idle_lane_ends_and_the_next_handoff_starts_another() -> None:
    async with pair("gqa", sender=ConnectorConfig(idle_s=0.1)) as both:
        for number in range(2):
            both.prefill(f"r{number}", 32, [0, 1])
            held = await both.receiver.committed(f"h-r{number}", 5)
            await both.reported(f"r{number}")
            both.receiver.release(held)
            (lane,) = both.senders[0]._lanes.values()
            await until(lambda lane=lane: not lane.is_alive())
        assert len(both.receiver.status()["prefill_instances"]) == 1


@pytest.mark.contract("H5", "H6")
async def test_blocks_are_held_no_longer_than_hold_s() -> None:
    """Every other time limit is far away, and the decode node has no slot to give."""
    far = ConnectorConfig(frame_bytes=4096, hold_s=0.3, handoff_s=600, offer_s=600)
    async with pair(sender=far) as both:
        both.prefill("a", 32, [0, 1], 1)
        held = await both.receiver.committed("h-a", 10)
        await both.reported("a")
        both.prefill("b", 32, [2, 3], 2)
        await both.reported("b", within=15)
        with pytest.raises(HandoffFailed):
            await both.receiver.committed("h-b", 10)
        both.receiver.release(held)


@pytest.mark.contract("H5", "H6")
async def test_two_requests_under_one_id_are_not_mixed(caplog: pytest.LogCaptureFixture) -> None:
    async with pair("gqa") as both:
        twin = Opening(request="twin", claim=both.claim("h-r"), tokens=32)
        both.step(Step(openings=(both.opening("r", 32), twin)))
        await until(lambda: "request r is handed off under the same id" in caplog.text)
        chunks = tuple(
            Chunk(request=name, blocks=blocks, available=32) for name, blocks in (("r", (0, 1)), ("twin", (2, 3)))
        )
        both.step(Step(chunks=chunks), lambda: both.model.prefill([0, 1], 0, 32, 1))
        held = await both.receiver.committed("h-r", 5)
        assert np.array_equal(both.slot(0), both.model.expected(32, CAPACITY, 1))
        for name in ("r", "twin"):
            both.finish(name)
            await both.reported(name)
        both.receiver.release(held)
