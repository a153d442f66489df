"""The native tier: a request and its reply relayed to a server of a pool.

Invariant: to one server, bodies cross unparsed in both directions; to a pair, only the fields of the exchange are
rewritten. A client that leaves ends the upstream request. A request that no server was reached for goes to one other,
once.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from router.background import Background
from router.body import Body
from router.config import Timeouts
from router.errors import NotConfigured, Unreached
from router.headers import json_headers, onward
from router.native.exchange import Exchange, exchanged
from router.native.pool import Pool
from router.native.prefixes import prefixes
from router.native.relay import relay
from router.native.server import Server
from router.native.upstream import Sent, Upstream
from router.record import Record

__all__ = ["NativePath"]

_LOG = logging.getLogger("router")
ATTEMPTS = 2


@dataclass(slots=True)
class _Ask:
    """A request as it goes to servers. ``held``: parameters of a state that the server ``held_by`` keeps for it."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes | None
    body: Body | None
    held: dict[str, object] | None = None
    held_by: str | None = None


class NativePath:
    """Relays to servers of a pool.

    Args:
        session: one that leaves reply bodies compressed (``auto_decompress=False``).
    """

    def __init__(self, session: aiohttp.ClientSession, pool: Pool, timeouts: Timeouts, background: Background) -> None:
        self.pool = pool
        self._upstream = Upstream(session, timeouts)
        self._exchange = Exchange(self._upstream, timeouts)
        self._timeouts = timeouts
        self._background = background

    async def relay(
        self,
        request: web.Request,
        raw: bytes | None,
        extra: dict[str, str],
        record: Record,
        *,
        body: Body | None = None,
        search: bool = False,
    ) -> web.StreamResponse:
        """Relay a request.

        ``raw``: its body. ``extra``: headers to add to the reply. ``body``: what was read of ``raw``; without it the
        request goes to one server as it is. ``search``: it names something that one of the servers keeps, so a 404
        is not the answer before each was asked.

        Raises:
            NotConfigured, PeerBroken, PeerTimeout: before the first byte of the reply.
            ConnectionResetError: after it; either side has gone.
        """
        ask = _Ask(request.method, request.path_qs, onward(request), raw, body)
        record.request_id = record.request_id or ask.headers.get("x-request-id", "")
        shared = exchanged(request.path, body) if request.method == "POST" else False
        prefix = prefixes(body)
        tried: list[Server] = []
        failures = 0
        while True:
            with self.pool.use(prefix, tried) as server:
                tried.append(server)
                try:
                    upstream = await self._open(server, ask, shared)
                except Unreached:
                    failures += 1
                    if failures == ATTEMPTS or not self._more(tried):
                        raise
                    continue
                if search and upstream.status == 404 and self._more(tried):
                    upstream.release()
                    continue
                record.node = server.name
                return await relay(
                    upstream, request, {**extra, "x-speedtier-node": server.name}, record, self._timeouts
                )

    def _more(self, tried: list[Server]) -> bool:
        try:
            self.pool.choose(without=tried)
        except NotConfigured:
            return False
        return True

    async def _open(self, server: Server, ask: _Ask, shared: bool) -> aiohttp.ClientResponse:
        """The reply for the client. Raises as ``Upstream.ask``."""
        if not shared or server.prefill_url is None:
            return await self._upstream.ask(ask.method, server.url, ask.path, ask.headers, ask.raw, server.health)
        assert ask.body is not None
        if ask.held is None or ask.held_by != server.prefill_url:
            found = await self._exchange.prefill(server, ask.path, ask.headers, ask.body)
            if isinstance(found, aiohttp.ClientResponse):
                return found
            ask.held, ask.held_by = found, server.prefill_url
        if not ask.held:
            return await self._upstream.ask("POST", server.url, ask.path, ask.headers, ask.raw, server.health)
        order = Sent(ask.body.changed({"kv_transfer_params": ask.held}).raw)
        try:
            return await self._upstream.ask(
                "POST", server.url, ask.path, json_headers(ask.headers), order, server.health
            )
        except asyncio.CancelledError:
            # A decode server that got the request frees the state itself when the client leaves; fetching it twice
            # could put what is no longer there into its prefix cache.
            if not order.begun:
                self._background.start(self._exchange.free(server, ask.path, ask.headers, ask.body, ask.held))
            raise
        except Unreached:
            _LOG.warning("native server %s cannot be reached; %s holds a state for it", server.url, ask.held_by)
            raise
