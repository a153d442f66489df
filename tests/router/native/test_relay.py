"""The native path: bytes there and back, headers, and servers that break."""

import asyncio
import json
import zlib

import pytest
from aiohttp import ClientSession, web

from router.fake import FakePrefill, serving
from tests.router.stack import CHAT, Open, until


async def test_bytes_cross_unparsed_in_both_directions(open_stack: Open, model_dir) -> None:
    odd = b'{ "model":"tiny",  "stream": false, "x": NaN, "text": "\xe6\x97\xa5\\u65e5" }\n'
    stack = await open_stack(FakePrefill(model_dir, native_body=b'{"b" : 1,\n "a": 2}', native_status=418))
    headers = {"content-type": "application/json"}
    # An escape in a body that cannot be looked into could spell anything, so this one has none.
    for raw in (odd.replace(b"NaN", b"1"), odd.replace(b"\\u65e5", b"")):
        async with stack.session.post(stack.url + CHAT, data=raw, headers=headers) as reply:
            assert (reply.status, await reply.read()) == (418, b'{"b" : 1,\n "a": 2}')
            assert reply.headers["x-speedtier-class"] == "native"
        assert stack.prefill.native_seen[-1] == raw


async def test_events_arrive_one_by_one(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir, native_pace_s=0.1))
    async with stack.session.post(stack.url + CHAT, json={"stream": True}) as reply:
        assert reply.headers["x-own"] == "1"
        assert await reply.content.readany() == stack.prefill.native_events[0]
        assert b"".join([chunk async for chunk in reply.content.iter_any()]).endswith(b"[DONE]\n\n")


@pytest.mark.contract("R7")
async def test_hop_by_hop_headers_stay_behind(open_stack: Open) -> None:
    stack = await open_stack()
    headers = {
        "connection": "keep-alive, x-secret-hop",
        "x-secret-hop": "1",
        "te": "trailers",
        "keep-alive": "timeout=5",
        "proxy-authorization": "Basic x",
        "authorization": "Bearer k",
        "x-request-id": "r",
        "user-agent": "mine",
    }
    async with stack.session.post(stack.url + CHAT, json={}, headers=headers) as reply:
        assert reply.status == 200
    seen = stack.prefill.headers[-1]
    assert {"x-secret-hop", "te", "keep-alive", "proxy-authorization"}.isdisjoint(seen)
    assert (seen["authorization"], seen["x-request-id"], seen["user-agent"]) == ("Bearer k", "r", "mine")


async def test_compressed_bodies_stay_what_they_are(open_stack: Open, model_dir) -> None:
    async def answer(request: web.Request) -> web.Response:
        raw = await request.read()
        headers = {"content-encoding": "deflate", "content-type": "application/json"}
        return web.Response(body=zlib.compress(raw), headers=headers)

    app = web.Application()
    app.router.add_post(CHAT, answer)
    async with serving(app) as url:
        stack = await open_stack(native=(url,))
        async with ClientSession(auto_decompress=False) as session:
            sent = zlib.compress(b'{"a": 1}')
            headers = {"content-encoding": "deflate", "content-type": "application/json"}
            async with session.post(stack.url + CHAT, data=sent, headers=headers) as reply:
                assert reply.headers["content-encoding"] == "deflate"
                assert zlib.decompress(await reply.read()) == b'{"a": 1}'


async def test_a_stream_that_breaks_between_events_ends_in_an_error_event(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir, cut_native=1, native_pace_s=0.01))
    async with stack.session.post(stack.url + CHAT, json={"stream": True}) as reply:
        first, error, done, _ = (await reply.text()).split("\n\n")
    assert first == 'data: {"a":1}' and done == "data: [DONE]"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 502


async def test_a_stream_that_breaks_inside_an_event_breaks_for_the_client(open_stack: Open, model_dir) -> None:
    events = (b'data: {"a":1}\n\ndata: {"b', b"never")
    stack = await open_stack(FakePrefill(model_dir, cut_native=1, native_events=events, native_pace_s=0.01))
    async with stack.session.post(stack.url + CHAT, json={"stream": True}) as reply:
        with pytest.raises(Exception, match=r"(?i)payload|closed|reset"):
            await reply.read()


@pytest.mark.contract("R2")
@pytest.mark.parametrize(("fault", "status"), [("hang", 504), ("die", 502)])
async def test_servers_that_fail_before_the_first_byte(open_stack: Open, model_dir, fault, status) -> None:
    stack = await open_stack(FakePrefill(model_dir, generate_fault=fault), timeouts={"native": 0.3})
    async with stack.session.post(stack.url + CHAT, json={}) as reply:
        assert reply.status == status and (await reply.json())["error"]["code"] == status
        assert reply.headers["x-speedtier-class"] == "native"


async def test_the_least_loaded_server_is_next(open_stack: Open, model_dir) -> None:
    servers = [FakePrefill(model_dir, native_pace_s=0.2) for _ in range(2)]
    async with serving(servers[0].app()) as one, serving(servers[1].app()) as two:
        stack = await open_stack(native=(one, two + "/"))

        async def ask() -> None:
            async with stack.session.post(stack.url + CHAT, json={}) as reply:
                await reply.read()

        await asyncio.gather(*(ask() for _ in range(6)))
    assert [len(server.native_seen) for server in servers] == [3, 3]


async def test_a_native_request_needs_no_speed_tier(open_stack: Open) -> None:
    stack = await open_stack(prefill=(), decode=(), nodes=[])
    async with stack.session.post(stack.url + CHAT, json={}) as reply:
        assert reply.status == 200
    async with stack.session.get(stack.url + "/v1/models") as reply:
        assert (await reply.json())["data"][0]["id"] == "tiny"
    await until(lambda: stack.prefill.calls == [CHAT, "/v1/models"])
