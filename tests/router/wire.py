"""A TCP relay before a server, that fails on cue as machines and networks do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["", "absent", "refusing", "black-holed", "slow", "restarting"]
SLOW_S = 0.05
"""Below every timeout of the tests."""
DOWN_S = 0.3


class Wire:
    """``absent``: nothing listens, connections are reset. ``refusing``: connections are taken and reset.
    ``black-holed``: nothing passes any more, and nobody is told. ``slow``: every piece waits ``SLOW_S``.
    ``restarting``: absent for ``DOWN_S``."""

    def __init__(self, upstream: str) -> None:
        split = urlsplit(upstream)
        assert split.hostname and split.port
        self._target = split.hostname, split.port
        self._fault: Fault = ""
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def _reset(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def fail(self, fault: Fault) -> None:
        self._fault = fault
        if fault in ("absent", "restarting"):
            assert self._server is not None
            self._server.close()
            self._reset()
        if fault == "refusing":
            self._reset()
        if fault == "restarting":
            task = asyncio.create_task(self._back())
            self._tasks.add(task)

    async def _back(self) -> None:
        await asyncio.sleep(DOWN_S)
        self._fault = ""
        await self.listen()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        if self._fault == "refusing":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._open |= pair
        try:
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        finally:
            self._open -= pair
            for each in pair:
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._fault == "black-holed":
                    continue
                if self._fault == "slow":
                    await asyncio.sleep(SLOW_S)
                writer.write(data)
                await writer.drain()
        # A hidden end would be a fault of its own: what one side ended is ended for the other.
        if self._fault != "black-holed":
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        self._reset()
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=1)
        await asyncio.sleep(0.01)  # until aborted transports are closed


@contextlib.asynccontextmanager
async def wired(upstream: str) -> AsyncIterator[Wire]:
    wire = Wire(upstream)
    await wire.listen()
    try:
        yield wire
    finally:
        await wire.close()
