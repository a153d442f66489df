"""The clients: connections that count events and read nothing else.

Invariant: nothing of a reply is parsed but its status line.
"""

import asyncio
import time
from typing import Any, Self

import msgspec

from speedtier.errors import SpeedtierError

__all__ = ["Client", "post"]

LIMIT_S = 30.0
MARK = b"data: "
END = b"\r\n0\r\n\r\n"
"""With the end of the chunk before it: a head may end in a 0 too."""


def post(path: str, body: dict[str, Any], **headers: str) -> bytes:
    """A request's bytes."""
    raw = msgspec.json.encode(body)
    lines = {"host": "bench", "content-type": "application/json", "content-length": str(len(raw)), **headers}
    text = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{text}\r\n".encode() + raw


class Client(asyncio.Protocol):
    """One connection. `events`: how often `data: ` was seen; `size`: bytes received."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.events = self.size = 0
        self.status = b""
        self.tail = b""
        self.first = asyncio.get_running_loop().create_future()
        self.end = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a port of this machine."""
        _, client = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.status = data[9:12]
            if self.status != b"200":
                self._fail(f"the bench was answered {data[:400]!r}")
        self.size += len(data)
        self.events += (self.tail[1 - len(MARK) :] + data).count(MARK)  # one may come in two pieces
        if self.events and not self.first.done():
            self.first.set_result(time.perf_counter())
        self.tail = (self.tail + data)[-len(END) :]
        if self.tail == END and not self.end.done():
            self.end.set_result(time.perf_counter())

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"a connection of the bench broke: {error}")

    def _fail(self, why: str) -> None:
        for waiting in (self.first, self.end):
            if not waiting.done():
                waiting.set_exception(SpeedtierError(why))
                waiting.exception()  # not everybody waits for both

    def ask(self, request: bytes) -> float:
        """Send; gives the time."""
        self.status, self.tail, self.events, self.size = b"", b"", 0, 0
        loop = asyncio.get_running_loop()
        self.first, self.end = loop.create_future(), loop.create_future()
        started = time.perf_counter()
        self.transport.write(request)
        return started

    async def began(self) -> float:
        """When the first event came."""
        return float(await asyncio.wait_for(asyncio.shield(self.first), LIMIT_S))

    async def ended(self, limit_s: float = LIMIT_S) -> float:
        """When the reply was over."""
        return float(await asyncio.wait_for(asyncio.shield(self.end), limit_s))

    def close(self) -> None:
        """Hang up."""
        self._fail("closed")
        self.transport.abort()
