"""The receiver against a peer that says what it likes: a bare ZeroMQ socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import zmq
import zmq.asyncio

from speedtier.errors import ConfigError
from tests.tilert_connector.paged_model import fingerprint
from tests.tilert_connector.pair import until
from tilert_connector import HandoffFailed, HandoffTimeout, Receiver, ReceiverConfig
from tilert_connector.chain import describe, root
from tilert_connector.errors import WireError
from tilert_connector.layout import mla_layout
from tilert_connector.protocol import (
    Accepted,
    Done,
    Ended,
    FromDecode,
    FromPrefill,
    Hello,
    Offer,
    Refused,
    Welcome,
    Withdraw,
    decode_from_decode,
    encode,
)
from tilert_connector.transport import FakeCarrier, FakeSink, FakeWire, Frame, cut_frames

LAYOUT = mla_layout([0, 1], 4, 8, 4)
CAPACITY = 32
ALL = ((0, 2),)


class Peer:
    def __init__(self, context: zmq.asyncio.Context, port: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    async def say(self, message: FromPrefill | bytes) -> None:
        await self.socket.send(message if isinstance(message, bytes) else encode(message))

    async def hear(self) -> FromDecode:
        return decode_from_decode(await asyncio.wait_for(self.socket.recv(), 5))

    async def silent(self) -> bool:
        return await self.socket.poll(100) == 0

    async def greet(self) -> None:
        await self.say(Hello(instance="p", fingerprint=fingerprint()))
        assert isinstance(await self.hear(), Welcome)

    async def offer(self, handoff: str, round_: int = 0, tokens: int = 8) -> FromDecode:
        await self.say(Offer(handoff=handoff, rank=0, round=round_, tokens=tokens, planes=ALL))
        return await self.hear()


class Node:
    def __init__(self, config: ReceiverConfig, slots: int) -> None:
        self.wire = FakeWire()
        self.slots = [np.zeros(LAYOUT.slot_bytes(CAPACITY), np.uint8) for _ in range(slots)]
        views = [memoryview(slot.data) for slot in self.slots]
        sink = FakeSink(self.wire, LAYOUT, views, CAPACITY)
        self.receiver = Receiver(config, LAYOUT, fingerprint(), views, CAPACITY, sink)
        self.sink = sink
        self.context = zmq.asyncio.Context()

    def peer(self) -> Peer:
        return Peer(self.context, self.receiver.ctrl_port)

    def write(self, accepted: Accepted, tokens: int, planes: tuple[tuple[int, int], ...] = ALL) -> None:
        writer = FakeCarrier(self.wire).open(self.sink.describe(), accepted.generation, accepted.key)
        for frame in cut_frames(LAYOUT, planes, 0, tokens, 1 << 20):
            writer.write(Frame(*frame), [memoryview(bytes([7]) * frame.size)])
            writer.progress()


@asynccontextmanager
async def node(slots: int = 1, **config: float) -> AsyncIterator[Node]:
    made = Node(ReceiverConfig(**config), slots)  # type: ignore[arg-type]
    await made.receiver.start()
    try:
        yield made
    finally:
        made.context.destroy(linger=0)
        await made.receiver.close()


@pytest.mark.contract("H3")
async def test_offer_write_done_commit() -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        accepted = await peer.offer("h")
        assert isinstance(accepted, Accepted) and accepted.round == 0
        one.write(accepted, 8)
        await asyncio.sleep(0.05)
        with pytest.raises(HandoffTimeout, match="being written"):
            await one.receiver.committed("h", 0.05)
        await peer.say(Done(handoff="h", rank=0, generation=accepted.generation))
        assert await peer.hear() == Ended(handoff="h", state="committed")
        held = await one.receiver.committed("h", 1)
        assert held.tokens == 8
        with pytest.raises(HandoffFailed, match="taken for decoding already"):
            await one.receiver.committed("h", 1)


@pytest.mark.contract("H3")
async def test_done_before_the_bytes_or_of_another_generation_commits_nothing() -> None:
    async with node() as one:
        peer, stranger = one.peer(), one.peer()
        await peer.greet()
        await stranger.greet()
        first = await peer.offer("h")
        assert isinstance(first, Accepted)
        one.write(first, 4)
        again = await peer.offer("h", round_=1)
        assert isinstance(again, Accepted)
        assert again.generation > first.generation and again.key != first.key
        for generation in (first.generation, again.generation + 1, 2**62):
            await peer.say(Done(handoff="h", rank=0, generation=generation))
        await stranger.say(Done(handoff="h", rank=0, generation=again.generation))
        await peer.say(Done(handoff="other", rank=0, generation=again.generation))
        await until(lambda: one.receiver.status()["messages"]["ignored"] == 5)
        await peer.say(Done(handoff="h", rank=0, generation=again.generation))
        assert await peer.silent()
        assert one.receiver.status()["open"] == {"writing": 1}


@pytest.mark.contract("H3", "H7")
async def test_without_a_hello_nothing_is_accepted() -> None:
    async with node() as one:
        peer = one.peer()
        refused = await peer.offer("h")
        assert isinstance(refused, Refused) and refused.code == "hello"
        await peer.say(Hello(instance="p", fingerprint=fingerprint(rope="other")))
        refused = await peer.hear()
        assert isinstance(refused, Refused) and refused.code == "fingerprint" and "rope" in refused.reason
        refused = await peer.offer("h")
        assert isinstance(refused, Refused) and refused.code == "hello"
        assert one.receiver.status()["open"] == {}


@pytest.mark.contract("H3")
@pytest.mark.parametrize("planes", [((0, 3),), ((1, 1),), ((1, 2), (0, 1)), ((0, 2), (1, 2))])
async def test_planes_that_are_not_there_are_refused(planes: tuple[tuple[int, int], ...]) -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        await peer.say(Offer(handoff="h", rank=0, round=0, tokens=8, planes=planes))
        refused = await peer.hear()
        assert isinstance(refused, Refused) and refused.code == "malformed"
        assert one.receiver.status()["slots_held"] == {}


@pytest.mark.contract("H3")
async def test_two_senders_cannot_bring_the_same() -> None:
    async with node() as one:
        peer, other = one.peer(), one.peer()
        await peer.greet()
        await other.greet()
        assert isinstance(await peer.offer("h"), Accepted)
        for rank, round_, tokens, planes in (
            (0, 0, 8, ALL),  # the same again
            (0, 1, 8, ALL),  # another peer's rank
            (1, 0, 8, ((1, 2),)),  # a plane that rank 0 brings
            (1, 0, 9, ((1, 2),)),  # another prompt
        ):
            await other.say(Offer(handoff="h", rank=rank, round=round_, tokens=tokens, planes=planes))
            refused = await other.hear()
            assert isinstance(refused, Refused) and refused.code == "conflict"
        repeated = await peer.offer("h")
        assert isinstance(repeated, Refused) and repeated.code == "conflict"


@pytest.mark.contract("H2")
async def test_a_handoff_is_whole_only_with_every_rank() -> None:
    async with node() as one:
        peers = [one.peer(), one.peer()]
        for rank, peer in enumerate(peers):
            await peer.greet()
            await peer.say(Offer(handoff="h", rank=rank, round=0, tokens=8, planes=((rank, rank + 1),)))
            accepted = await peer.hear()
            assert isinstance(accepted, Accepted)
            one.write(accepted, 8, ((rank, rank + 1),))
            await peer.say(Done(handoff="h", rank=rank, generation=accepted.generation))
            if rank == 0:
                assert await peer.silent()
        for peer in peers:
            assert await peer.hear() == Ended(handoff="h", state="committed")


@pytest.mark.contract("H5")
async def test_cancelled_before_it_was_offered_is_refused_when_it_comes() -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        assert await one.receiver.cancel("h", "the client left")
        refused = await peer.offer("h")
        assert isinstance(refused, Refused) and refused.code == "ended"
        assert "cancelled already the client left" in refused.reason
        assert one.receiver.status()["open"] == {}


@pytest.mark.contract("H5")
async def test_withdrawn_by_its_owner_only() -> None:
    async with node() as one:
        peer, stranger = one.peer(), one.peer()
        await peer.greet()
        assert isinstance(await peer.offer("h"), Accepted)
        await stranger.say(Withdraw(handoff="h", rank=0, reason="mine"))
        await until(lambda: one.receiver.status()["messages"]["ignored"] == 1)
        await peer.say(Withdraw(handoff="h", rank=0, reason="no more blocks"))
        ended = await peer.hear()
        assert isinstance(ended, Ended) and ended.state == "failed" and "no more blocks" in ended.reason
        await until(lambda: one.receiver.status()["slots_held"] == {})


@pytest.mark.contract("H5")
@pytest.mark.parametrize("data", [b"", b"\xc1", b"hello", encode(Ended(handoff="h", state="failed"))])
async def test_what_is_no_message_is_refused_and_counted(data: bytes) -> None:
    async with node() as one:
        peer = one.peer()
        await peer.say(data)
        refused = await peer.hear()
        assert isinstance(refused, Refused) and refused.code == "malformed"
        await peer.socket.send_multipart([b"two", b"frames"])
        assert isinstance(await peer.hear(), Refused)
        assert one.receiver.status()["messages"]["malformed"] == 2
        await peer.greet()


@pytest.mark.contract("H4", "H5")
async def test_every_wait_has_a_timer() -> None:
    async with node(handoff_s=0.6, slot_wait_s=0.2, claim_s=0.2, expect_s=0.3) as one:
        peer = one.peer()
        await peer.greet()
        first = await peer.offer("first")
        assert isinstance(first, Accepted)
        late = await peer.offer("second")
        assert isinstance(late, Ended) and "no slot was free in time (0.2 s)" in late.reason
        one.write(first, 8)
        await peer.say(Done(handoff="first", rank=0, generation=first.generation))
        assert isinstance(await peer.hear(), Ended)
        await until(lambda: one.receiver.status()["slots_held"] == {}, within=3)
        with pytest.raises(HandoffFailed, match="nobody asked for the committed state"):
            await one.receiver.committed("first", 1)
        third = await peer.offer("third")
        assert isinstance(third, Accepted)
        ended = await peer.hear()
        assert isinstance(ended, Ended) and "it was not written in time" in ended.reason
        with pytest.raises(HandoffFailed, match="the prefill node never offered it"):
            await one.receiver.committed("never", 3)


@pytest.mark.contract("H5")
async def test_state_that_was_taken_stays_until_it_is_given_back() -> None:
    async with node(claim_s=0.1, handoff_s=0.2) as one:
        peer = one.peer()
        await peer.greet()
        accepted = await peer.offer("h")
        assert isinstance(accepted, Accepted)
        one.write(accepted, 8)
        await peer.say(Done(handoff="h", rank=0, generation=accepted.generation))
        held = await one.receiver.committed("h", 1)
        await asyncio.sleep(0.3)
        assert one.receiver.status()["slots_held"] == {"0": held.generation}
        assert not await one.receiver.cancel("h", "too late")
        one.receiver.release(held)
        assert one.receiver.status()["ended"] == {"committed": 1, "failed": 0, "cancelled": 0}


@pytest.mark.contract("H4")
async def test_no_more_than_the_limit_may_wait() -> None:
    async with node(max_handoffs=2) as one:
        peer = one.peer()
        await peer.greet()
        assert isinstance(await peer.offer("a"), Accepted)
        await peer.say(Offer(handoff="b", rank=0, round=0, tokens=8, planes=ALL))
        refused = await peer.offer("c")
        assert isinstance(refused, Refused) and refused.code == "busy"


async def test_a_waiter_that_is_cancelled_takes_nothing_with_it() -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        waiting = asyncio.create_task(one.receiver.committed("h", 5))
        await asyncio.sleep(0.01)
        waiting.cancel()
        accepted = await peer.offer("h")
        assert isinstance(accepted, Accepted)
        one.write(accepted, 8)
        await peer.say(Done(handoff="h", rank=0, generation=accepted.generation))
        held = await one.receiver.committed("h", 5)
        one.receiver.release(held)
        one.receiver.release(held)
        assert one.receiver.status()["slots_held"] == {}


@pytest.mark.parametrize("slot", [memoryview(bytes(1 << 16)), memoryview(bytearray(8))])
def test_slots_must_fit_and_be_writable(slot: memoryview) -> None:
    with pytest.raises(ConfigError, match=r"slots\[0\]"):
        Receiver(ReceiverConfig(), LAYOUT, fingerprint(), [slot], CAPACITY)


async def test_a_taken_control_port_is_named_and_leaves_nothing_open() -> None:
    async with node() as one:
        slot = memoryview(bytearray(LAYOUT.slot_bytes(CAPACITY)))
        taken = ReceiverConfig(ctrl_port=one.receiver.ctrl_port)
        other = Receiver(taken, LAYOUT, fingerprint(), [slot], CAPACITY)
        with pytest.raises(ConfigError, match="ctrl_port: cannot listen"):
            await other.start()


async def test_what_happened_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tilert_connector.account")
    async with node(slots=2) as one:
        peer = one.peer()
        refused = await peer.offer("early")
        assert isinstance(refused, Refused) and refused.code == "hello"
        await peer.greet()
        accepted = await peer.offer("h")
        assert isinstance(accepted, Accepted)
        one.write(accepted, 8)
        await peer.say(Done(handoff="h", rank=0, generation=accepted.generation))
        assert await peer.hear() == Ended(handoff="h", state="committed")
        assert isinstance(await peer.offer("g"), Accepted)
        await peer.say(Withdraw(handoff="g", rank=0, reason="r"))
        assert isinstance(await peer.hear(), Ended)
        status = one.receiver.status()
    assert status["messages"]["refused_by_code"] == {"hello": 1} and status["quarantined"] == 0
    assert status["commit_seconds"]["buckets"][-1] == ["+Inf", 1] and status["commit_seconds"]["sum"] > 0
    first, second, *_ = [(line.levelname, line.getMessage()) for line in caplog.records]
    size = LAYOUT.slot_bytes(8)
    assert first[0] == "INFO" and f"handoff=h end=committed tokens=8 held=0 bytes={size} transport=fake" in first[1]
    assert second[0] == "WARNING" and "handoff=g end=failed" in second[1] and "reason=withdrawn" in second[1]


@pytest.mark.contract("H2", "H12")
async def test_bytes_from_a_later_token_than_is_held_do_not_land() -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        accepted = await peer.offer("h")
        assert isinstance(accepted, Accepted)
        writer = FakeCarrier(one.wire).open(one.sink.describe(), accepted.generation, accepted.key)
        (frame,) = cut_frames(LAYOUT, ALL, 4, 8, 1 << 20)
        writer.write(frame, [memoryview(bytes(frame.size))])
        with pytest.raises(WireError, match="starts plane 0 at token 4, expected 0"):
            writer.progress()
        await peer.say(Done(handoff="h", rank=0, generation=accepted.generation))
        ended = await peer.hear()
        assert isinstance(ended, Ended) and ended.state == "failed"


@pytest.mark.contract("H12")
async def test_ranks_that_describe_other_prompts_are_not_put_together() -> None:
    prefixes = [describe(range(first, first + 8), root("m", "")) for first in (0, 1)]
    async with node() as one:
        peers = [one.peer(), one.peer()]
        for rank, (peer, prefix) in enumerate(zip(peers, prefixes, strict=True)):
            await peer.greet()
            planes = ((rank, rank + 1),)
            origin = root("m", str(rank))
            await peer.say(
                Offer(handoff="h", rank=rank, round=0, tokens=8, planes=planes, chain=origin, rest=prefix.ids)
            )
            answer = await peer.hear()
        assert isinstance(answer, Refused) and answer.code == "conflict" and "chain is another" in answer.reason
