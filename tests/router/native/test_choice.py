"""Servers that cannot be reached, are busy, or break: who is asked instead, and who is left alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from router.fake import FakeNative, serving
from tests.router.stack import CHAT, Open, Stack, until

pytestmark = pytest.mark.contract("R2", "R4")
Serve = Callable[[web.Application], Awaitable[str]]
BODY = {"messages": [{"role": "user", "content": "x" * 2000}]}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as exits:

        async def one(app: web.Application) -> str:
            return await exits.enter_async_context(serving(app))

        yield one


async def ask(stack: Stack, **fields: Any) -> int:
    async with stack.session.post(stack.url + CHAT, json={**BODY, **fields}) as reply:
        await reply.read()
        return reply.status


async def test_a_server_that_is_down_costs_nobody_a_request(
    open_stack: Open, serve: Serve, unused_tcp_port: int
) -> None:
    well = FakeNative()
    stack = await open_stack(native=(f"http://127.0.0.1:{unused_tcp_port}", await serve(well.app())))
    assert [await ask(stack) for _ in range(6)] == [200] * 6
    assert len(well.seen) == 6


async def test_a_server_that_comes_back_is_used_again(open_stack: Open, serve: Serve, unused_tcp_port: int) -> None:
    well, back = FakeNative(), FakeNative()
    stack = await open_stack(native=(f"http://127.0.0.1:{unused_tcp_port}", await serve(well.app())))
    assert await ask(stack) == 200
    async with serving(back.app(), unused_tcp_port):
        assert await ask(stack) == 200, "it is left alone for a while"
        assert back.seen == []

        async def tried() -> bool:
            assert await ask(stack, messages=[{"role": "user", "content": "short"}]) == 200
            return bool(back.seen)

        async with asyncio.timeout(10):
            while not await tried():
                await asyncio.sleep(0.05)


async def test_when_none_is_left_the_error_says_why(open_stack: Open, unused_tcp_port_factory) -> None:
    urls = tuple(f"http://127.0.0.1:{unused_tcp_port_factory()}" for _ in range(3))
    stack = await open_stack(native=urls)
    for _ in range(3):
        async with stack.session.post(stack.url + CHAT, json=BODY) as reply:
            error = (await reply.json())["error"]
            assert reply.status == 502 and "cannot be reached" in error["message"]


@pytest.mark.parametrize(
    ("status", "headers", "again"),
    [
        (503, {}, False),
        (502, {}, False),
        (503, {"retry-after": "1"}, True),
        (429, {}, True),
        (500, {}, True),
        (400, {}, True),
    ],
)
async def test_busy_never_trips_and_a_gateways_error_does(
    open_stack: Open, serve: Serve, status: int, headers: dict[str, str], again: bool
) -> None:
    one, two = FakeNative(status=status, headers=headers), FakeNative()
    stack = await open_stack(native=(await serve(one.app()), await serve(two.app())))
    assert await ask(stack) == status, "what a server answers is the answer"
    assert await ask(stack) == (status if again else 200)
    assert len(one.seen) == (2 if again else 1)


@asynccontextmanager
async def breaking() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that reads a request and hangs up."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", seen


async def test_a_request_that_reached_a_server_is_not_sent_twice(open_stack: Open, serve: Serve) -> None:
    """It may be what broke the server."""
    well = FakeNative()
    async with breaking() as (url, seen):
        stack = await open_stack(native=(url, await serve(well.app())))
        assert await ask(stack) == 502
        assert (len(seen), well.seen) == (1, [])
        assert await ask(stack) == 200


async def test_turns_of_a_conversation_meet_the_same_server(open_stack: Open, serve: Serve) -> None:
    servers = [FakeNative(delay_s=0.02) for _ in range(3)]
    stack = await open_stack(native=tuple([await serve(each.app()) for each in servers]))

    async def talk(number: int) -> None:
        messages = [{"role": "user", "content": f"{number} " * 400}]
        for turn in range(5):
            assert await ask(stack, messages=messages) == 200
            messages += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": f"and {turn}?"}]

    await asyncio.gather(*(talk(number) for number in range(9)))
    homes: dict[str, set[int]] = {}
    for where, server in enumerate(servers):
        for each in server.seen:
            homes.setdefault(json.loads(each.body)["messages"][0]["content"], set()).add(where)
    assert len(homes) == 9 and all(len(home) == 1 for home in homes.values())
    assert [len(server.seen) for server in servers] == [15, 15, 15]


async def test_a_client_that_leaves_says_nothing_of_the_server(open_stack: Open, serve: Serve) -> None:
    slow, other = FakeNative(delay_s=0.3), FakeNative()
    stack = await open_stack(native=(await serve(slow.app()), await serve(other.app())))
    asking = asyncio.create_task(ask(stack))
    await until(lambda: slow.seen)
    asking.cancel()
    await asyncio.sleep(0.05)
    assert await ask(stack) == 200
    assert (len(slow.seen), len(other.seen)) == (2, 0), "its begin still leads there"
