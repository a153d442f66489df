"""HTTP/1.1 by hand, so that the stubs cost next to nothing beside the router that is measured.

Invariant: each event is its own chunk of the body, made once and sent as it is.
"""

import asyncio

__all__ = ["Server", "chunk", "head", "whole"]

HEAD_END = b"\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def head(kind: str) -> bytes:
    """The head of a reply whose body comes in chunks."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def whole(body: bytes, kind: str = "application/json") -> bytes:
    """A whole reply."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Server(asyncio.Protocol):
    """One connection: calls `answer` with each request's path and body."""

    transport: asyncio.Transport
    gone = False

    def __init__(self) -> None:
        self._seen = bytearray()

    def answer(self, path: bytes, body: bytes) -> None:
        """Write the reply to `self.transport`."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True

    def data_received(self, data: bytes) -> None:
        self._seen += data
        while (end := self._seen.find(HEAD_END)) >= 0:
            lines = bytes(self._seen[:end]).split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line[:15].lower() == b"content-length:"), 0)
            if len(self._seen) < end + len(HEAD_END) + length:
                return
            body = bytes(self._seen[end + len(HEAD_END) : end + len(HEAD_END) + length])
            del self._seen[: end + len(HEAD_END) + length]
            self.answer(lines[0].split(b" ")[1], body)
