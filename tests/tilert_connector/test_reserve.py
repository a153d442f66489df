"""Slots that are kept for handoffs before they are offered (R4): in turn, for one handoff each, and never for ever."""

import asyncio

import pytest

from tests.tilert_connector.pair import until
from tests.tilert_connector.test_receiver import ALL, node
from tilert_connector import HandoffFailed
from tilert_connector.errors import HandoffBusy
from tilert_connector.protocol import Accepted, Ended, Offer

pytestmark = pytest.mark.contract("R4", "H4")


async def test_a_kept_slot_goes_to_its_handoff_though_others_wait() -> None:
    async with node() as one:
        peer, other = one.peer(), one.peer()
        await peer.greet()
        await other.greet()
        await one.receiver.reserve("mine", 0)
        await other.say(Offer(handoff="theirs", rank=0, round=0, tokens=8, planes=ALL))
        assert await other.silent(), "the slot is free, and it is not theirs"
        assert one.receiver.status()["open"] == {"reserved": 1, "waiting": 1}
        accepted = await peer.offer("mine")
        assert isinstance(accepted, Accepted) and accepted.handoff == "mine"
        assert await one.receiver.cancel("mine", "enough")
        assert isinstance(await peer.hear(), Ended)
        assert (await other.hear()).handoff == "theirs"  # type: ignore[union-attr]


async def test_reservations_and_offers_are_served_in_one_order() -> None:
    async with node() as one:
        peer = one.peer()
        await peer.greet()
        order: list[str] = []

        async def reserve(name: str) -> None:
            await one.receiver.reserve(name, 5)
            order.append(name)

        first = await peer.offer("first")
        assert isinstance(first, Accepted)
        second = asyncio.create_task(reserve("second"))
        await until(lambda: one.receiver.status()["open"].get("reserving") == 1)
        await peer.say(Offer(handoff="third", rank=0, round=0, tokens=8, planes=ALL))
        await until(lambda: one.receiver.status()["open"].get("waiting") == 1)
        fourth = asyncio.create_task(reserve("fourth"))
        await until(lambda: one.receiver.status()["open"].get("reserving") == 2)
        await one.receiver.cancel("first", "")
        await second
        await one.receiver.cancel("second", "")
        assert isinstance(await peer.hear(), Ended)
        third = await peer.hear()
        assert isinstance(third, Accepted) and third.handoff == "third" and order == ["second"]
        await one.receiver.cancel("third", "")
        await fourth
        assert order == ["second", "fourth"]


async def test_nobody_waits_longer_than_it_said_and_no_name_is_used_twice() -> None:
    async with node() as one:
        await one.receiver.reserve("a", 0)
        for wait_s in (0.0, 0.1):
            with pytest.raises(HandoffBusy, match="no slot was free in time"):
                await one.receiver.reserve(f"b{wait_s}", wait_s)
        with pytest.raises(HandoffBusy, match="this one is known"):
            await one.receiver.reserve("a", 0)
        await one.receiver.cancel("a", "")
        with pytest.raises(HandoffBusy, match="this one is known"):
            await one.receiver.reserve("a", 0)
        await one.receiver.reserve("c", 0)


async def test_a_kept_slot_that_nobody_comes_for_is_given_on() -> None:
    async with node(lease_s=0.1, expect_s=0.05) as one:
        await one.receiver.reserve("a", 0)
        await one.receiver.reserve("b", 1)
        with pytest.raises(HandoffFailed, match="it was not offered"):
            await one.receiver.committed("a", 1)
        with pytest.raises(HandoffFailed, match="the prefill node never offered it"):
            await one.receiver.committed("b", 1)
        assert one.receiver.status()["open"] == {}


async def test_who_waits_for_the_offer_hears_of_it_and_of_the_end() -> None:
    async with node(slots=2) as one:
        peer = one.peer()
        await peer.greet()
        for name in ("offered", "cancelled"):
            await one.receiver.reserve(name, 0)
        waiting = [asyncio.create_task(one.receiver.offered(name)) for name in ("offered", "cancelled")]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        assert isinstance(await peer.offer("offered"), Accepted)
        await asyncio.wait_for(waiting[0], 1)
        await one.receiver.cancel("cancelled", "")
        await asyncio.wait_for(waiting[1], 1)
