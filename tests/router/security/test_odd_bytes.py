"""Bytes that are no text, where text is usual: in headers, targets and strings. None makes the router fail."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from router.config import ApiKey, ModelAlias
from router.fake import FakeNative, serving
from tests.router.stack import Open, Stack

pytestmark = pytest.mark.contract("R2", "R7")
ODD = (b"\xff\xfe", "日本".encode(), b"\xc3", b"\x80", b"a\tb", b"%ff%00", b'"\\', b"\xf0\x9f\x8e\x89")
NAMES = (
    *("x-a", "x-request-id", "x-traffic-class", "authorization", "x-api-key", "traceparent", "x-session-id"),
    *("baggage", "content-type", "accept", "user-agent", "cookie", "origin"),
)


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakeNative, str]]:
    fake = FakeNative()
    async with serving(fake.app()) as url:
        yield fake, url


async def status(stack: Stack, raw: bytes) -> tuple[int, bytes]:
    """Of the reply to raw bytes; the connection ends after it."""
    where = URL(stack.url)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(raw)
    async with asyncio.timeout(10):
        reply = await reader.read()
    writer.close()
    return int(reply.split(b" ", 2)[1]), reply


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = (b"POST " + path + b" HTTP/1.1", b"host: x", b"connection: close", *headers)
    return b"\r\n".join((*lines, b"content-length: %d" % len(body), b"", body))


@pytest.mark.parametrize("tier", [b"native", b"speed"])
@pytest.mark.parametrize("name", NAMES)
async def test_in_headers(open_stack: Open, server: tuple[FakeNative, str], name: str, tier: bytes) -> None:
    _, url = server
    keyed = ApiKey(name="me", sha256=hashlib.sha256(b"k").hexdigest())
    stacks = [await open_stack(native=(url,)), await open_stack(native=(url,), api_keys=(keyed,))]
    body = b'{"model": "tiny", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 2}'
    for odd in ODD:
        for path in (b"/v1/chat/completions", b"/v1/messages", b"/health", b"/v1/nope"):
            for stack in stacks:
                headers = (name.encode() + b": " + odd, b"x-traffic-class: " + tier)
                got, reply = await status(stack, post(path, body, *headers))
                assert got < 500, reply


@pytest.mark.parametrize("path", [b"/v1/responses/%s", b"/v1/embeddings?a=%s", b"/%s", b"/v1/chat/completions?%s"])
async def test_in_targets(open_stack: Open, server: tuple[FakeNative, str], path: bytes) -> None:
    _, url = server
    stack = await open_stack(native=(url,))
    for odd in ODD:
        got, reply = await status(stack, post(path.replace(b"%s", odd), b"{}"))
        assert got < 500, reply


STRINGS = (
    b'"\\ud800"',
    b'"\\u0000"',
    '"日本 🎉"'.encode(),
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"1e999",
    b"-0",
    b"[]",
    b"{}",
    b"null",
)


@pytest.mark.parametrize(
    "field", ["model", "service_tier", "cache_salt", "messages", "user", "stream", "max_tokens", "x"]
)
async def test_in_strings(open_stack: Open, server: tuple[FakeNative, str], field: str) -> None:
    _, url = server
    keyed = ApiKey(name="me", sha256=hashlib.sha256(b"k").hexdigest(), tenant="t")
    alias = ModelAlias(name="fast", model="tiny", traffic_class="speed")
    for settings in ({}, {"aliases": (alias,)}, {"api_keys": (keyed,)}):
        stack = await open_stack(native=(url,), **settings)
        for value in STRINGS:
            given = {"model": b'"tiny"', "messages": b'[{"role": "user", "content": "fox"}]', "max_tokens": b"2"}
            given[field] = value
            body = b"{" + b", ".join(b'"%s": %s' % (name.encode(), each) for name, each in given.items()) + b"}"
            for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/messages", b"/tokenize"):
                for tier in (b"native", b"speed"):
                    headers = (
                        b"content-type: application/json",
                        b"x-traffic-class: " + tier,
                        b"authorization: Bearer k",
                    )
                    got, reply = await status(stack, post(path, body, *headers))
                    assert got < 500 or _stubs(reply), (body, reply)


def _stubs(reply: bytes) -> bool:
    """Whether the stub of a prefill server said it; it is simpler than vLLM."""
    return "prefill server" in json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["message"]
