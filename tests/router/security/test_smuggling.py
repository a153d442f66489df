"""Requests whose end two parsers could see in different places, over raw sockets: what is behind such an end never
becomes a request, and each is refused or served as the one request that it is.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from router.fake import FakeNative, serving
from tests.router.stack import Open, Stack

pytestmark = pytest.mark.contract("R7")
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
HIDDEN = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nx-smuggled: 1\r\ncontent-length: 2\r\n\r\n{}"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
TE = b"transfer-encoding: chunked\r\n"


def length(value: object) -> bytes:
    return f"content-length: {value}\r\n".encode()


REFUSED = {
    "length and chunked": HEAD + length(len(CHUNKS)) + TE + b"\r\n" + CHUNKS + HIDDEN,
    "chunked and length": HEAD + TE + length(2) + b"\r\n" + CHUNKS + HIDDEN,
    "short length and chunked": HEAD + length(4) + TE + b"\r\n" + b"0\r\n\r\n" + HIDDEN,
    "two lengths": HEAD + length(2) + length(2 + len(HIDDEN)) + b"\r\n{}" + HIDDEN,
    "two lengths in one": HEAD + length(f"2, {2 + len(HIDDEN)}") + b"\r\n{}" + HIDDEN,
    "signed length": HEAD + length("+2") + b"\r\n{}" + HIDDEN,
    "negative length": HEAD + length("-2") + b"\r\n{}" + HIDDEN,
    "length with a space inside": HEAD + length("1 2") + b"\r\n{}" + HIDDEN,
    "hexadecimal length": HEAD + length("0x2") + b"\r\n{}" + HIDDEN,
    "length with a letter": HEAD + length("2a") + b"\r\n{}" + HIDDEN,
    "length of too many digits": HEAD + length("9" * 40) + b"\r\n{}" + HIDDEN,
    "space before the colon": HEAD + b"content-length : 2\r\n\r\n{}" + HIDDEN,
    "tab before the colon": HEAD + b"transfer-encoding\t: chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "unknown coding": HEAD + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS + HIDDEN,
    "identity": HEAD + b"transfer-encoding: identity\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "chunked twice": HEAD + b"transfer-encoding: chunked, chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "chunked, then another": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: xyz\r\n\r\n" + CHUNKS + HIDDEN,
    "quoted coding": HEAD + b'transfer-encoding: "chunked"\r\n\r\n' + CHUNKS + HIDDEN,
    "vertical tab": HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n" + CHUNKS + HIDDEN,
    "folded header": HEAD + b"transfer-encoding:\r\n chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "folded first header": b"POST /v1/embeddings HTTP/1.1\r\n host: x\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "bare line feeds": HEAD.replace(b"\r\n", b"\n") + b"content-length: 2\n\n{}" + HIDDEN,
    "bare carriage return": HEAD + b"x: a\rcontent-length: 2\r\n\r\n{}" + HIDDEN,
    "NUL in a value": HEAD + b"x-a: b\x00c\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "NUL in a name": HEAD + b"x\x00a: b\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "NUL in the target": b"POST /v1/embeddings\x00 HTTP/1.1\r\nhost: x\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "space in the target": b"POST /v1/embeddings /x HTTP/1.1\r\nhost: x\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "no colon": HEAD + b"content-length 2\r\n\r\n{}" + HIDDEN,
    "empty name": HEAD + b": 2\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "huge header": HEAD + b"x-a: " + b"a" * 100_000 + b"\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "chunk size with a sign": HEAD + TE + b"\r\n+2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "chunk size with 0x": HEAD + TE + b"\r\n0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "chunk size with a space before it": HEAD + TE + b"\r\n 2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "chunk size that overflows": HEAD + TE + b"\r\n10000000000000002\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "chunk longer than its size": HEAD + TE + b"\r\n1\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "chunk ended by a line feed": HEAD + TE + b"\r\n2\n{}\n0\n\n" + HIDDEN,
    "bare line feed in an extension": HEAD + TE + b"\r\n2;x\n{}\r\n0\r\n\r\n" + HIDDEN,
    "version that is none": b"POST /v1/embeddings HTTP/1.1x\r\nhost: x\r\n" + length(2) + b"\r\n{}" + HIDDEN,
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + HIDDEN,
}
SERVED = {
    "plain": HEAD + length(2) + b"\r\n{}",
    "chunked": HEAD + TE + b"\r\n" + CHUNKS,
    "chunk extensions": HEAD + TE + b'\r\n2;a=b;c="d"\r\n{}\r\n0;x\r\n\r\n',
    "trailers": HEAD + TE + b"\r\n2\r\n{}\r\n0\r\nx-smuggled: 1\r\n\r\n",
    "a chunk a byte": HEAD + TE + b"\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    "coding in capitals": HEAD + b"Transfer-Encoding: CHUNKED\r\n\r\n" + CHUNKS,
    "absolute form": b"POST http://elsewhere.invalid/v1/embeddings HTTP/1.1\r\nhost: x\r\n" + length(2) + b"\r\n{}",
    "many hosts in the value": HEAD.replace(b"host: x", b"host: x:1") + length(2) + b"\r\n{}",
    "a header that is only like one": HEAD + b"transfer_encoding: chunked\r\n" + length(2) + b"\r\n{}",
    "expectation": HEAD + b"expect: 100-continue\r\n" + length(2) + b"\r\n{}",
}


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakeNative, str]]:
    fake = FakeNative()
    async with serving(fake.app()) as url:
        yield fake, url


async def send(stack: Stack, raw: bytes) -> bytes:
    where = URL(stack.url)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    try:
        writer.write(raw)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_ambiguous_is_refused_and_nothing_behind_it_counts(
    open_stack: Open, server: tuple[FakeNative, str], name: str
) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), timeouts={"receive": 1.0})
    reply = await send(stack, REFUSED[name])
    assert reply.count(b"HTTP/1.1 ") <= 2
    assert not any("x-smuggled" in each.headers for each in fake.seen), fake.seen
    assert fake.seen == [] and b" 400 " in reply.partition(b"\r\n")[0], reply[:200]
    async with stack.session.post(stack.url + "/v1/embeddings", json={}) as good:
        assert good.status == 200


@pytest.mark.parametrize("name", SERVED)
async def test_what_is_clear_is_served_once(open_stack: Open, server: tuple[FakeNative, str], name: str) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), timeouts={"receive": 0.5})
    reply = await send(stack, SERVED[name])
    assert b"HTTP/1.1 200 OK\r\n" in reply
    (seen,) = fake.seen
    assert (seen.path, seen.body) == ("/v1/embeddings", b"{}")
    assert seen.headers["content-length"] == "2" and "transfer-encoding" not in seen.headers
    assert {"x-smuggled", "expect", "trailer"}.isdisjoint(seen.headers)
    assert seen.headers["host"] == url.removeprefix("http://"), "a client does not choose the host"


async def test_pipelined_requests_are_answered_in_order(open_stack: Open, server: tuple[FakeNative, str]) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), timeouts={"receive": 0.5})
    one = HEAD + b"x-number: %d\r\n" + length(2) + b"\r\n{}"
    reply = await send(stack, b"".join(one % number for number in range(5)))
    assert reply.count(b"HTTP/1.1 200 OK\r\n") == 5
    assert [each.headers["x-number"] for each in fake.seen] == list("01234")


async def test_a_reply_with_a_header_that_is_none_is_the_servers_fault(open_stack: Open) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a: b\x00c\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        stack = await open_stack(native=(f"http://127.0.0.1:{port}",))
        async with stack.session.post(stack.url + "/v1/embeddings", json={}) as reply:
            assert reply.status == 502 and (await reply.json())["error"]["type"] == "BadGatewayError"
