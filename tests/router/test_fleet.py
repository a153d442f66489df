"""Nodes come and go while requests run (R4): none is lost, and a node that leaves keeps what it has begun."""

import asyncio

import aiohttp
import pytest

from router import DecodeNodeConfig, RouterConfig, Timeouts
from router.background import Background
from router.errors import BadRequest, Busy, NotConfigured, NotFound
from router.fake import FakeDecode, serving
from router.fleet import Ask, Fleet
from router.node import Node

pytestmark = pytest.mark.contract("R4")
ASK = Ask(queue="speed", prompt=4, new=4)


def fleet_of(http: aiohttp.ClientSession, *urls: str, wait_s: float = 5.0) -> Fleet:
    config = RouterConfig(decode=tuple(DecodeNodeConfig(url=url) for url in urls), queue_wait_s=wait_s)
    return Fleet(config, lambda each: Node(each, http, Timeouts()), Background())


async def test_a_node_that_is_added_serves_who_waits() -> None:
    one, two = FakeDecode(), FakeDecode()
    async with serving(one.app()) as first, serving(two.app()) as second, aiohttp.ClientSession() as http:
        fleet = fleet_of(http, first)
        await fleet.awake()
        held = await fleet.attempt(ASK)
        waiting = asyncio.create_task(fleet.attempt(ASK))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        fleet.add(DecodeNodeConfig(url=second))
        found = await asyncio.wait_for(waiting, 2)
        assert found.node.url == second
        with pytest.raises(BadRequest, match="is there already"):
            fleet.add(DecodeNodeConfig(url=second))
        held.end()
        found.end()
        await fleet.close()


async def test_a_drained_node_gets_nothing_and_comes_back() -> None:
    async with serving(FakeDecode().app()) as url, aiohttp.ClientSession() as http:
        fleet = fleet_of(http, url, wait_s=0.1)
        [node] = await fleet.awake()
        fleet.drain(node.name)
        with pytest.raises(NotConfigured, match="being drained"):
            await fleet.awake()
        with pytest.raises(Busy):
            await fleet.attempt(ASK)
        fleet.resume(node.name)
        (await fleet.attempt(ASK)).end()
        with pytest.raises(NotFound, match="no decode node is called 'x'"):
            fleet.drain("x")
        await fleet.close()


async def test_a_node_is_removed_when_its_requests_have_ended() -> None:
    async with serving(FakeDecode().app()) as url, aiohttp.ClientSession() as http:
        fleet = fleet_of(http, url)
        [node] = await fleet.awake()
        held = await fleet.attempt(ASK)
        removing = asyncio.create_task(fleet.remove(node.name))
        await asyncio.sleep(0.05)
        assert fleet.nodes == [node] and not removing.done()
        held.end()
        await asyncio.wait_for(removing, 2)
        assert fleet.nodes == []
        await fleet.close()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_slot_of_another_router_is_waited_for_where_it_frees_first(others: int) -> None:
    fakes = [FakeDecode() for _ in range(1 + others)]
    async with aiohttp.ClientSession() as http, serving(fakes[0].app()) as first, serving(fakes[-1].app()) as second:
        urls = [first, second][: 1 + others]
        ours, theirs = fleet_of(http, *urls), fleet_of(http, *urls)
        for fleet in (ours, theirs):
            await fleet.awake()
        held = [await theirs.attempt(ASK) for _ in urls]
        waiting = asyncio.create_task(ours.attempt(ASK))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "the nodes decide, not our own count"
        freed = held.pop()
        freed.end()
        found = await asyncio.wait_for(waiting, 2)
        assert found.node.name == freed.node.name
        found.end()
        for each in held:
            each.end()
        await asyncio.sleep(0.05)
        assert all(not fake.kept.held for fake in fakes), "what was not taken is given back"
        assert all(node.in_flight == 0 for node in [*ours.nodes, *theirs.nodes])
        await ours.close()
        await theirs.close()


async def test_nobody_waits_longer_for_another_router_than_for_its_own() -> None:
    async with serving(FakeDecode().app()) as url, aiohttp.ClientSession() as http:
        ours, theirs = fleet_of(http, url, wait_s=0.1), fleet_of(http, url)
        await ours.awake()
        await theirs.awake()
        held = await theirs.attempt(ASK)
        with pytest.raises(Busy) as refused:
            await ours.attempt(ASK)
        assert refused.value.retry_after_s >= 1
        assert ours.nodes[0].in_flight == 0
        held.end()
        await ours.close()
        await theirs.close()
