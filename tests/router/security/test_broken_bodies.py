"""Bodies that turn out to be broken while they arrive: the client's fault, and said so."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from router.fake import FakeNative, serving
from tests.router.stack import Open

pytestmark = pytest.mark.contract("R2")
PATHS = ("/v1/chat/completions", "/v1/embeddings")


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakeNative, str]]:
    fake = FakeNative()
    async with serving(fake.app()) as url:
        yield fake, url


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("rest", [b"zz\r\n", b"-1\r\n{}\r\n", b"2\r\n}}}}\r\n", b"ffffffffffffffffff\r\n"])
async def test_a_chunk_that_breaks_later(open_stack: Open, server: tuple[FakeNative, str], path: str, rest) -> None:
    fake, url = server
    stack = await open_stack(native=(url,), timeouts={"receive": 0.3})
    where = URL(stack.url)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{\n\r\n".encode())
    await asyncio.sleep(0.1)
    writer.write(rest)
    async with asyncio.timeout(10):
        reply = await reader.read()
    writer.close()
    # Nobody may be told of the error while the body is awaited; then it is the wait that ends, and the connection.
    status = reply.partition(b"\r\n")[0].split(b" ")[1]
    assert status in (b"400", b"408") and b'"error"' in reply, reply
    assert fake.seen == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "nonsense", "gzip, gzip"])
@pytest.mark.parametrize("data", [b"no such thing", b"\x1f\x8b\x08\x00", b""])
async def test_a_body_that_is_not_what_its_coding_says(
    open_stack: Open, server: tuple[FakeNative, str], path: str, coding: str, data: bytes, caplog
) -> None:
    _, url = server
    stack = await open_stack(native=(url,))
    headers = {"content-encoding": coding, "content-type": "application/json"}
    caplog.clear()
    async with stack.session.post(stack.url + path, data=data, headers=headers) as reply:
        assert not [each for each in caplog.records if each.levelname == "ERROR"]
        # What the router cannot unpack goes on as it is, and vLLM, which unpacks nothing, refuses it.
        assert reply.status in (200, 400, 415), await reply.text()
    async with stack.session.post(stack.url + path, json={}) as good:
        assert good.status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_stops_in_the_middle(open_stack: Open, server: tuple[FakeNative, str], path: str) -> None:
    fake, url = server
    stack = await open_stack(native=(url,))
    where = URL(stack.url)
    _, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode())
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    await asyncio.sleep(0.1)
    assert fake.seen == []
    async with stack.session.post(stack.url + path, json={}) as good:
        assert good.status == 200
