"""Writing to a client that may be slow, or gone.

Invariant: a client that does not read cannot hold a slot for longer than the operator's patience.
"""

import asyncio

from aiohttp import web

from router.call import Call

__all__ = ["Outlet", "send"]

SMALL = 1 << 14
"""Less than what a connection buffers before a write waits for its client (64 KiB)."""


async def send(request: web.Request, reply: web.StreamResponse, data: bytes, patience_s: float) -> None:
    """Write to a client.

    Raises:
        ConnectionResetError: it has gone, or read nothing for ``patience_s`` seconds; then it is hung up on.
    """
    transport = request.transport
    if transport is not None and len(data) < SMALL and not transport.get_write_buffer_size():
        await reply.write(data)  # the client has read all so far, so this does not wait: no timer is needed
        return
    try:
        async with asyncio.timeout(patience_s):
            await reply.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"the client read nothing for {patience_s:g} s") from None


class Outlet:
    """The event stream to one client; its headers go out with the first write."""

    def __init__(self, call: Call, patience_s: float) -> None:
        self._call = call
        self._patience_s = patience_s
        self.reply: web.StreamResponse | None = None

    async def write(self, data: bytes) -> None:
        """Send; raises as ``send``."""
        if self.reply is None:
            headers = {"content-type": "text/event-stream; charset=utf-8", **self._call.headers()}
            self.reply = web.StreamResponse(headers=headers)
            await self.reply.prepare(self._call.request)
            self._call.record.status = 200
        await send(self._call.request, self.reply, data, self._patience_s)
