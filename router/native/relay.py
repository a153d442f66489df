"""A server's reply on its way to the client.

Invariant: bytes cross unparsed and as they come; a reply that breaks off never looks like one that ended.
"""

import aiohttp
from aiohttp import web

from router.config import Timeouts
from router.errors import ApiError, PeerBroken, PeerTimeout
from router.headers import back
from router.outlet import send
from router.record import Record

__all__ = ["relay"]


async def relay(
    upstream: aiohttp.ClientResponse,
    request: web.Request,
    extra: dict[str, str],
    record: Record,
    timeouts: Timeouts,
) -> web.StreamResponse:
    """Send a reply on. ``extra``: headers to add.

    Raises:
        ConnectionResetError: either side has gone.
    """
    try:
        headers = back(upstream.headers)
        headers.update(extra)
        reply = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
        record.stream = upstream.content_type == "text/event-stream"
        await reply.prepare(request)
        record.status = upstream.status
        await _copy(upstream, reply, request, record, timeouts)
    except BaseException:
        upstream.close()
        raise
    upstream.release()
    return reply


async def _copy(
    upstream: aiohttp.ClientResponse,
    reply: web.StreamResponse,
    request: web.Request,
    record: Record,
    timeouts: Timeouts,
) -> None:
    url = upstream.url.origin()
    last = b""
    while True:
        error: ApiError
        try:
            chunk = await upstream.content.readany()
        except TimeoutError:
            error = PeerTimeout(f"native server {url} sent nothing for {timeouts.native:g} s")
        except (aiohttp.ClientError, OSError) as cause:
            error = PeerBroken(f"native server {url} broke off: {cause}")
        else:
            if not chunk:
                return
            record.token()
            await send(request, reply, chunk, timeouts.client)
            last = chunk
            continue
        record.fail(error)
        if record.stream and (not last or last.endswith(b"\n\n")):
            await send(request, reply, b"data: " + error.body() + b"\n\ndata: [DONE]\n\n", timeouts.client)
            return
        # A body that stops short can only be told from a whole one when the connection breaks.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(error.message)
