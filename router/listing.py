"""``/v1/models`` where there are aliases: a server's list, with a card for each alias.

Invariant: what is no list of models reaches the client as the server sent it.
"""

import asyncio

import aiohttp
from aiohttp import web

from router.aliases import Aliases
from router.errors import PeerBroken, PeerTimeout
from router.headers import onward
from router.native import Pool
from router.record import Record

__all__ = ["Listing"]


class Listing:
    """Asks one server of ``pool``, for ``within_s`` seconds at most."""

    def __init__(self, session: aiohttp.ClientSession, pool: Pool, aliases: Aliases, within_s: float) -> None:
        self._session = session
        self._pool = pool
        self._aliases = aliases
        self._within_s = within_s

    async def answer(self, request: web.Request, record: Record) -> web.StreamResponse:
        """The list. Raises: NotConfigured, PeerBroken, PeerTimeout."""
        headers = onward(request)
        headers.popall("accept-encoding", None)
        with self._pool.use() as server:
            try:
                async with (
                    asyncio.timeout(self._within_s),
                    self._session.get(f"{server.url}/v1/models", headers=headers) as reply,
                ):
                    raw, record.status = await reply.read(), reply.status
            except TimeoutError:
                raise PeerTimeout(f"{server.url} did not list its models within {self._within_s:g} s") from None
            except (aiohttp.ClientError, OSError) as error:
                server.health.failed(str(error))
                raise PeerBroken(f"{server.url} cannot be reached: {error}") from error
            server.health.worked()
            body = self._aliases.listed(raw) if reply.status == 200 else raw
            return web.Response(status=reply.status, body=body, content_type=reply.content_type)
