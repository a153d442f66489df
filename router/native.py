"""The native tier: a request and its reply relayed as they are.

Invariant: bodies cross unparsed in both directions; a client that leaves ends the upstream request, and an
upstream that breaks off never looks like a reply that ended.
"""

import aiohttp
from aiohttp import web

from router.config import Timeouts
from router.errors import ApiError, PeerBroken, PeerTimeout
from router.headers import back, onward
from router.outlet import send
from router.pool import Pool
from router.record import Record

__all__ = ["NativePath"]


class NativePath:
    """Relays to the least loaded server of a pool.

    Args:
        session: one that leaves reply bodies compressed (``auto_decompress=False``).
    """

    def __init__(self, session: aiohttp.ClientSession, pool: Pool, timeouts: Timeouts) -> None:
        self._session = session
        self._pool = pool
        self._timeouts = timeouts

    async def relay(
        self, request: web.Request, raw: bytes | None, extra: dict[str, str], record: Record
    ) -> web.StreamResponse:
        """Relay a request. ``raw``: its body. ``extra``: headers to add to the reply.

        Raises:
            NotConfigured, PeerBroken, PeerTimeout: before the first byte of the reply.
            ConnectionResetError: after it; either side has gone.
        """
        with self._pool.use() as url:
            upstream = await self._open(url, request, raw)
            try:
                headers = back(upstream.headers)
                headers.update(extra)
                reply = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
                record.stream = upstream.content_type == "text/event-stream"
                record.request_id = request.headers.get("x-request-id", "")
                await reply.prepare(request)
                record.status = upstream.status
                await self._copy(url, upstream, reply, request, record)
            except BaseException:
                upstream.close()
                raise
            upstream.release()
            return reply

    async def _open(self, url: str, request: web.Request, raw: bytes | None) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                request.method,
                url + request.path_qs,
                headers=onward(request.headers),
                data=raw,
                allow_redirects=False,
                skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                timeout=aiohttp.ClientTimeout(sock_connect=self._timeouts.connect, sock_read=self._timeouts.native),
            )
        except TimeoutError:
            raise PeerTimeout(f"native server {url} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise PeerBroken(f"native server {url} cannot be reached: {error}") from error

    async def _copy(
        self,
        url: str,
        upstream: aiohttp.ClientResponse,
        reply: web.StreamResponse,
        request: web.Request,
        record: Record,
    ) -> None:
        whole_events = True
        while True:
            error: ApiError
            try:
                chunk = await upstream.content.readany()
            except TimeoutError:
                error = PeerTimeout(f"native server {url} sent nothing for {self._timeouts.native:g} s")
            except (aiohttp.ClientError, OSError) as cause:
                error = PeerBroken(f"native server {url} broke off: {cause}")
            else:
                if not chunk:
                    return
                record.token()
                whole_events = chunk.endswith(b"\n\n")
                await send(request, reply, chunk, self._timeouts.client)
                continue
            record.error = error.message
            if record.stream and whole_events:
                await reply.write(b"data: " + error.body() + b"\n\ndata: [DONE]\n\n")
                return
            # A body that stops short can only be told from a whole one when the connection breaks.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(error.message)
