"""`/pd/lease` (R4, R5): a slot is kept while its caller is connected."""

import asyncio

import pytest

from tests.persistent_engine.server.test_decode import body, node

pytestmark = pytest.mark.contract("R4", "R5")


async def test_a_lease_keeps_the_slot_until_the_state_comes() -> None:
    async with node() as one:
        async with one.http.post(one.url + "/pd/lease", json={"rid": "a"}) as reply:
            assert (reply.status, await reply.content.readline()) == (200, b'{"rid":"a"}\n')
            status, error = await one.post("/pd/lease", {"rid": "b", "wait_s": 0})
            assert (status, error["error"]["code"]) == (429, "busy")
            one.receiver.commit("a")
            assert await asyncio.wait_for(reply.read(), 1) == b"", "the lease ends where the handoff begins"
        assert (await one.post("/pd/decode", body("a")))[0] == 200
        await one.idle()
        assert one.receiver.cancelled == []


async def test_hanging_up_gives_the_slot_to_the_next() -> None:
    async with node() as one:
        for number in range(20):
            async with one.http.post(one.url + "/pd/lease", json={"rid": f"a{number}"}) as reply:
                assert await reply.content.readline()
                waiting = asyncio.create_task(one.post("/pd/lease", {"rid": f"b{number}", "wait_s": 5}))
                await asyncio.sleep(0.005)
                reply.close()
            await asyncio.sleep(0.02)
            assert f"a{number}" in one.receiver.cancelled
            one.receiver.commit(f"b{number}")
            assert (await asyncio.wait_for(waiting, 1))[0] == 200
            assert (await one.post("/pd/decode", body(f"b{number}")))[0] == 200


async def test_a_waiter_that_leaves_gives_up_its_place() -> None:
    async with node() as one, one.http.post(one.url + "/pd/lease", json={"rid": "a"}) as reply:
        assert await reply.content.readline()
        waiting = asyncio.create_task(one.post("/pd/lease", {"rid": "b", "wait_s": 60}))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.sleep(0.02)
        assert "b" in one.receiver.cancelled


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"rid":""}', b'{"rid":"a","wait_s":-1}', b'{"rid":"a","wait":1}', b"[" * 100_000]
)
async def test_what_is_no_lease_is_refused_and_takes_nothing(raw: bytes) -> None:
    async with node() as one:
        status, error = await one.post("/pd/lease", raw)
        assert (status, error["error"]["code"]) == (400, "invalid_request")
        assert one.receiver.reserved == {}
