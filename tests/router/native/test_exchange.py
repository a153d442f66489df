"""Native pairs: two legs, one transaction, and only the guilty server's health."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from router.background import Background
from router.body import look
from router.config import NativePair, Timeouts
from router.fake import FakePrefill, serving
from router.native import NativePath, Pool
from router.native.exchange import exchanged
from router.record import Record
from tests.router.stack import CHAT, COMPLETIONS, Open, Stack, until

PARAMS = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1, 2]], "remote_engine_id": "e"}
KEPT = json.dumps({"choices": [], "kv_transfer_params": PARAMS}).encode()
ASKED = {"model": "tiny", "prompt": "the fox", "max_tokens": 9, "max_completion_tokens": 9, "temperature": 0}
MORE = {"stream": True, "stream_options": {"include_usage": True}, "min_tokens": 4}


class Pairs:
    """Fakes of prefill and decode servers, and a router in front of them."""

    def __init__(self, exits: AsyncExitStack, open_stack: Open, model_dir: Path) -> None:
        self._exits, self._open, self.model_dir = exits, open_stack, model_dir

    async def serve(self, *servers: FakePrefill) -> list[str]:
        return [await self._exits.enter_async_context(serving(each.app())) for each in servers]

    async def router(self, *pairs: tuple[str, str], **settings: Any) -> Stack:
        made = tuple(NativePair(prefill=prefill, decode=decode) for prefill, decode in pairs)
        return await self._open(native=(), native_pairs=made, **settings)

    def prefill(self, **settings: Any) -> FakePrefill:
        return FakePrefill(self.model_dir, **{"native_body": KEPT, **settings})

    def decode(self, **settings: Any) -> FakePrefill:
        return FakePrefill(self.model_dir, **settings)


@pytest.fixture
async def pairs(open_stack: Open, model_dir: Path) -> AsyncIterator[Pairs]:
    async with AsyncExitStack() as exits:
        yield Pairs(exits, open_stack, model_dir)


async def ask(stack: Stack, path: str = COMPLETIONS, **fields: Any) -> tuple[int, bytes]:
    headers = {"x-request-id": "r1", "accept-encoding": "gzip", "traceparent": "00-1-2-00", "baggage": "a=b"}
    async with stack.session.post(stack.url + path, json={**ASKED, **fields}, headers=headers) as reply:
        return reply.status, await reply.read()


async def test_the_state_goes_by_the_parameters_that_the_prefill_server_returns(pairs: Pairs) -> None:
    prefill, decode = pairs.prefill(), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    status, raw = await ask(stack, **MORE)
    assert (status, raw) == (200, b"".join(decode.native_events))
    first, second = json.loads(prefill.native_seen[0]), json.loads(decode.native_seen[0])
    asked = {"do_remote_decode": True, "do_remote_prefill": False}
    asked |= dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
    assert first == {**ASKED, "max_tokens": 1, "max_completion_tokens": 1, "stream": False, "kv_transfer_params": asked}
    assert second == {**ASKED, **MORE, "kv_transfer_params": PARAMS}
    for seen in (prefill.headers[-1], decode.headers[-1]):
        assert (seen["x-request-id"], seen["traceparent"], seen["baggage"]) == ("r1", "00-1-2-00", "a=b")
        assert seen["content-type"] == "application/json"


@pytest.mark.parametrize("fields", [{"n": 2}, {"echo": True}, {"prompt": ["a", "b"]}, {"prompt_logprobs": 1}])
async def test_what_shares_no_single_state_is_computed_by_the_decode_server(pairs: Pairs, fields: Any) -> None:
    prefill, decode = pairs.prefill(), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    assert (await ask(stack, **fields))[0] == 200
    assert prefill.native_seen == []
    assert json.loads(decode.native_seen[0]) == {**ASKED, **fields}


def test_which_requests_are_exchanged() -> None:
    for raw, path, said in [
        (b'{"prompt": [1, 2]}', COMPLETIONS, True),
        (b'{"prompt": [[1, 2]]}', COMPLETIONS, False),
        (b'{"n": 1, "echo": false, "best_of": null, "messages": []}', CHAT, True),
        (b"[1]", CHAT, False),
        (b"{}", "/v1/messages", True),
        (b"{}", "/v1/embeddings", False),
    ]:
        assert exchanged(path, look(raw)) is said, raw


async def test_a_prefill_server_that_keeps_no_state_leaves_the_request_as_it_is(pairs: Pairs) -> None:
    prefill, decode = pairs.prefill(native_body=b'{"kv_transfer_params": null}'), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    assert (await ask(stack))[0] == 200
    assert json.loads(decode.native_seen[0]) == ASKED


@pytest.mark.contract("R2")
async def test_a_refusal_of_the_prefill_server_is_the_answer(pairs: Pairs) -> None:
    prefill, decode = pairs.prefill(native_status=422, native_body=b'{"error": "odd"}'), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    assert await ask(stack) == (422, b'{"error": "odd"}')
    assert decode.native_seen == []


@pytest.mark.contract("R2")
@pytest.mark.parametrize(("fault", "status"), [("die", 502), ("hang", 504)])
async def test_a_prefill_server_that_fails(pairs: Pairs, fault: Any, status: int) -> None:
    prefill, decode = pairs.prefill(generate_fault=fault), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)), timeouts={"prefill": 0.3})
    assert (await ask(stack))[0] == status
    assert decode.native_seen == []
    prefill.generate_fault = ""
    assert (await ask(stack))[0] == 200, "nobody else is left, so it is asked again at once"


@pytest.mark.contract("R2")
async def test_a_prefill_server_that_makes_no_sense(pairs: Pairs) -> None:
    prefill, decode = pairs.prefill(native_body=b"{oops"), pairs.decode()
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    assert (await ask(stack))[0] == 502


async def test_a_pair_that_cannot_be_reached_is_replaced_by_another(pairs: Pairs, unused_tcp_port: int) -> None:
    prefill, decode = pairs.prefill(), pairs.decode()
    there, gone = tuple(await pairs.serve(prefill, decode)), f"http://127.0.0.1:{unused_tcp_port}"
    stack = await pairs.router((gone, there[1]), there)
    assert (await ask(stack))[0] == 200
    assert (len(prefill.native_seen), len(decode.native_seen)) == (1, 1)


async def test_another_decode_server_takes_the_state_of_the_same_prefill_server(
    pairs: Pairs, unused_tcp_port: int
) -> None:
    prefill, decode = pairs.prefill(), pairs.decode()
    prefill_url, decode_url = await pairs.serve(prefill, decode)
    stack = await pairs.router((prefill_url, f"http://127.0.0.1:{unused_tcp_port}"), (prefill_url, decode_url))
    assert (await ask(stack))[0] == 200
    assert len(prefill.native_seen) == 1, "its state is not made twice"
    assert json.loads(decode.native_seen[0])["kv_transfer_params"] == PARAMS


@pytest.mark.contract("R5")
@pytest.mark.parametrize("leg", ["prefill", "decode"])
async def test_a_client_that_leaves_ends_the_leg_that_runs(pairs: Pairs, leg: str) -> None:
    slow = {"native_pace_s": 30.0}
    prefill = pairs.prefill(**(slow if leg == "prefill" else {}))
    decode = pairs.decode(**(slow if leg == "decode" else {}))
    server = prefill if leg == "prefill" else decode
    stack = await pairs.router(tuple(await pairs.serve(prefill, decode)))
    asking = asyncio.create_task(ask(stack))
    await until(lambda: server.native_seen)
    asking.cancel()
    await until(lambda: server.hung_up)
    await asyncio.sleep(0.05)
    # A decode server that got the request frees the state itself; one that did not must not be asked for it.
    assert len(decode.native_seen) == (leg == "decode")


async def test_a_state_that_no_decode_server_was_asked_for_is_fetched_and_dropped(pairs: Pairs) -> None:
    """The client leaves after the prefill leg, while the decode leg waits for a connection."""
    prefill, decode = pairs.prefill(), pairs.decode(native_pace_s=0.4)
    prefill_url, decode_url = await pairs.serve(prefill, decode)
    connector = aiohttp.TCPConnector(limit_per_host=1)
    async with aiohttp.ClientSession(connector=connector) as session, aiohttp.ClientSession() as client:
        background = Background()
        pool = Pool([], "native_pairs", [NativePair(prefill=prefill_url, decode=decode_url)])
        path = NativePath(session, pool, Timeouts(), background)

        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            return await path.relay(request, raw, {}, Record("x"), body=look(raw))

        app = web.Application()
        app.router.add_post(COMPLETIONS, handle)
        async with serving(app) as url:
            holds = asyncio.create_task(session.post(decode_url + COMPLETIONS, json={}))
            await until(lambda: decode.native_seen)
            asking = asyncio.create_task(client.post(url + COMPLETIONS, json={**ASKED, **MORE}))
            await until(lambda: prefill.native_seen)
            await asyncio.sleep(0.05)
            asking.cancel()
            (await holds).release()
            await until(lambda: len(decode.native_seen) == 2)
            await background.close(5)
    freed = json.loads(decode.native_seen[1])
    assert (freed["max_tokens"], freed["stream"], freed["kv_transfer_params"]) == (1, False, PARAMS)
    assert pool.servers[0].load == 0


@pytest.mark.parametrize("guilty", ["prefill", "decode"])
async def test_only_the_guilty_server_is_held_to_be_ill(
    pairs: Pairs, guilty: str, unused_tcp_port_factory: Callable[[], int]
) -> None:
    prefill_url, decode_url = await pairs.serve(pairs.prefill(), pairs.decode())
    gone = f"http://127.0.0.1:{unused_tcp_port_factory()}"
    pair = NativePair(
        prefill=gone if guilty == "prefill" else prefill_url, decode=gone if guilty == "decode" else decode_url
    )
    pool = Pool([], "native_pairs", [pair])
    async with aiohttp.ClientSession() as session, aiohttp.ClientSession() as client:
        path = NativePath(session, pool, Timeouts(), Background())
        failed: list[Exception] = []

        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            try:
                return await path.relay(request, raw, {}, Record("x"), body=look(raw))
            except Exception as error:
                failed.append(error)
                return web.Response(status=502)

        app = web.Application()
        app.router.add_post(COMPLETIONS, handle)
        async with serving(app) as url, client.post(url + COMPLETIONS, json=ASKED) as reply:
            assert reply.status == 502 and "cannot be reached" in str(failed[0])
    (server,) = pool.servers
    assert server.prefill_health is not None
    assert (server.prefill_health.healthy, server.health.healthy) == (guilty != "prefill", guilty != "decode")
