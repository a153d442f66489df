"""Clients that send slowly, too much or too deep: bounded, and nobody else waits for them."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from router.fake import FakeNative, serving
from tests.router.stack import CHAT, Open, Stack

pytestmark = pytest.mark.contract("R2")
PATIENCE = 0.5


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakeNative, str]]:
    fake = FakeNative()
    async with serving(fake.app()) as url:
        yield fake, url


async def others_are_served(stack: Stack) -> None:
    for _ in range(5):
        async with asyncio.timeout(5), stack.session.post(stack.url + CHAT, json={}) as reply:
            assert reply.status == 200


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"POST /v1/chat", b""),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-a: ", b""),
        (b"", b""),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", b"408"),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
    ],
)
async def test_many_slow_ones_are_let_go(open_stack: Open, server: tuple[FakeNative, str], start, answer) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), timeouts={"receive": PATIENCE})
    where = URL(stack.url)

    async def crawl() -> bytes:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(start)
        reading = asyncio.create_task(reader.read())
        while not reading.done():  # a byte now and then does not buy more time
            if start and not writer.is_closing():
                writer.write(b"1" if answer != b"408" or b"chunked" not in start else b"1\r\n1\r\n")
            await asyncio.wait([reading], timeout=PATIENCE / 4)
        writer.close()
        return reading.result()

    begun = time.monotonic()
    crawling = [asyncio.create_task(crawl()) for _ in range(20)]
    await others_are_served(stack)
    async with asyncio.timeout(PATIENCE * 20):
        replies = await asyncio.gather(*crawling)
    assert time.monotonic() - begun >= PATIENCE
    assert all(answer in reply.partition(b"\r\n")[0] for reply in replies), replies[0]
    assert len(fake.seen) == 5, "none of the slow requests went on"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_not_read_to_its_end(
    open_stack: Open, server: tuple[FakeNative, str], chunked: bool
) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), body_limit=4096)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(20_000):
            sent += 65_536
            yield b"x" * 65_536

    data = endless() if chunked else b"x" * 5000
    for path in (CHAT, "/v1/embeddings", "/v1/audio/transcriptions"):
        try:
            async with stack.session.post(stack.url + path, data=data) as reply:
                assert reply.status == 413
                assert json.loads(await reply.read())["error"]["type"] == "RequestEntityTooLargeError"
        except ConnectionError:
            assert chunked, "the router may hang up on who goes on sending"
        data = endless() if chunked else data
    assert sent < 200 << 20 and fake.seen == []
    await others_are_served(stack)


@pytest.mark.parametrize("shape", [b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", b"[" * 10_000, b'{"a":' * 10_000])
async def test_depth_costs_nobody_else_anything(open_stack: Open, server: tuple[FakeNative, str], shape: bytes) -> None:
    fake, url = server
    stack = await open_stack(native=(url,))
    for headers in ({}, {"x-traffic-class": "speed"}):
        headers = {**headers, "content-type": "application/json"}
        for path in (CHAT, "/v1/messages"):
            async with stack.session.post(stack.url + path, data=shape, headers=headers) as reply:
                assert reply.status == 400 and "deep" in (await reply.json())["error"]["message"]
    assert fake.seen == [] and stack.prefill.calls == []
    await others_are_served(stack)


async def test_a_bomb_is_measured_unpacked(open_stack: Open, server: tuple[FakeNative, str]) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), body_limit=1 << 20)
    bomb = zlib.compress(b" " * (64 << 20))
    headers = {"content-encoding": "deflate", "content-type": "application/json"}
    async with stack.session.post(stack.url + CHAT, data=bomb, headers=headers) as reply:
        assert reply.status in (400, 413)
    assert fake.seen == []
    await others_are_served(stack)
