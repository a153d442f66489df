"""A writer that does not stop: its slot stays out of use, whatever is asked of it."""

import asyncio

import pytest

from tests.tilert_connector.test_receiver import CAPACITY, LAYOUT, Node, fingerprint, until
from tilert_connector import Receiver, ReceiverConfig
from tilert_connector.protocol import Accepted, Ended
from tilert_connector.transport import FakeSink


class SlowSink(FakeSink):
    """Confirms that a writer has stopped only when it is allowed to."""

    stopping: asyncio.Event

    async def revoke(self, generation: int, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self.stopping.wait(), timeout_s)
        except TimeoutError:
            return False
        return await super().revoke(generation, timeout_s)


def slow_node() -> Node:
    node = Node(ReceiverConfig(), 1)
    views = [memoryview(slot.data) for slot in node.slots]
    sink = node.sink = SlowSink(node.wire, LAYOUT, views, CAPACITY)
    sink.stopping = asyncio.Event()
    node.receiver = Receiver(ReceiverConfig(drain_s=0.1), LAYOUT, fingerprint(), views, CAPACITY, sink)
    return node


@pytest.mark.contract("H4")
async def test_a_cancelled_slot_is_given_away_only_when_its_writer_has_stopped() -> None:
    node = slow_node()
    await node.receiver.start()
    try:
        peer = node.peer()
        await peer.greet()
        assert isinstance(await peer.offer("first"), Accepted)
        assert await asyncio.wait_for(node.receiver.cancel("first", "enough"), 5)
        assert isinstance(await peer.hear(), Ended)
        waiting = asyncio.create_task(peer.offer("second"))
        await until(lambda: node.receiver.status()["slow_drains"] > 1)
        assert not waiting.done() and node.receiver.status()["open"] == {"waiting": 1}
        node.sink.stopping.set()  # type: ignore[attr-defined]
        assert isinstance(await waiting, Accepted)
    finally:
        node.sink.stopping.set()  # type: ignore[attr-defined]
        node.context.destroy(linger=0)
        await node.receiver.close()


@pytest.mark.contract("H3", "H4")
async def test_a_new_round_is_accepted_only_when_every_earlier_one_has_stopped() -> None:
    node = slow_node()
    await node.receiver.start()
    try:
        peer = node.peer()
        await peer.greet()
        first = await peer.offer("h")
        second = asyncio.create_task(peer.offer("h", round_=1))
        await until(lambda: node.receiver.status()["slow_drains"] > 0)
        third = asyncio.create_task(peer.offer("h", round_=2))
        await until(lambda: node.receiver.status()["slow_drains"] > 3)
        assert not second.done() and not third.done()
        node.sink.stopping.set()  # type: ignore[attr-defined]
        done, _ = await asyncio.wait([second, third], timeout=5, return_when=asyncio.FIRST_COMPLETED)
        accepted = done.pop().result()
        assert isinstance(first, Accepted) and isinstance(accepted, Accepted)
        assert accepted.round == 2 and accepted.generation > first.generation
        assert await peer.silent()
        second.cancel()
        third.cancel()
    finally:
        node.sink.stopping.set()  # type: ignore[attr-defined]
        node.context.destroy(linger=0)
        await node.receiver.close()
