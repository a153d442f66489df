"""`POST /pd/lease`: a slot that is kept for a handoff before its prefill begins.

Invariant: a lease lasts as long as the connection that asked for it, until the prefill node offers the state; nothing
has to be told to a node whose caller died.
"""

import asyncio
import contextlib

import msgspec
from aiohttp import web

from persistent_engine.server.errors import Answer
from persistent_engine.server.receiving import Receiving
from persistent_engine.server.request import LeaseRequest, parse_lease
from tilert_connector import HandoffBusy

__all__ = ["Leases"]


class Leases:
    """Handler over a receiver's slots, whose queue decides: callers need not know of each other."""

    def __init__(self, receiver: Receiving) -> None:
        self._receiver = receiver

    async def lease(self, http: web.Request) -> web.StreamResponse:
        """200 with the line `{"rid": ...}` once a slot is kept, and the end of the body once it was offered; 429."""
        try:
            order = parse_lease(await http.read())
            return await self._hold(http, order)
        except Answer as answer:
            return answer.response()

    async def _hold(self, http: web.Request, order: LeaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"})
        over = False
        try:
            await self._receiver.reserve(order.rid, order.wait_s)
            await response.prepare(http)
            await response.write(msgspec.json.encode({"rid": order.rid}) + b"\n")
            await self._receiver.offered(order.rid)
            over = True
        except HandoffBusy as error:
            over = True
            raise Answer(429, "busy", str(error)) from error
        finally:
            if not over:
                await asyncio.shield(self._receiver.cancel(order.rid, "its lease was given up"))
        with contextlib.suppress(ConnectionResetError):
            await response.write_eof()
        return response
