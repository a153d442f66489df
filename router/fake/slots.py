"""The slots of a fake decode node, kept before prefill as the real one keeps them.

Invariant: never more are held than there are; who waits is served in order.
"""

import asyncio
from collections import deque

from aiohttp import web

__all__ = ["FakeSlots"]


class FakeSlots:
    """``crowded``: requests to decode that came without a lease while every slot was held."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.held: dict[str, asyncio.Event] = {}
        self.crowded: list[str] = []
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def lease(self, request: web.Request) -> web.StreamResponse:
        """``POST /pd/lease``."""
        order = await request.json()
        rid = str(order["rid"])
        if not await self._taken(rid, float(order["wait_s"])):
            error = {"message": "no slot was free in time", "type": "server_error", "code": "busy"}
            return web.json_response({"error": error}, status=429)
        try:
            reply = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
            await reply.prepare(request)
            await reply.write(b"{}\n")
            await self.held[rid].wait()
            return reply
        except BaseException:
            self.release(rid)
            raise

    async def _taken(self, rid: str, wait_s: float) -> bool:
        if len(self.held) >= self.total:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((rid, turn))
            try:
                async with asyncio.timeout(wait_s):
                    await turn
            except TimeoutError:
                self._leave(rid, turn)
                return False
            except asyncio.CancelledError:
                self._leave(rid, turn)
                raise
        else:
            self.held[rid] = asyncio.Event()
        return True

    def _leave(self, rid: str, turn: "asyncio.Future[None]") -> None:
        if (rid, turn) in self._waiting:
            self._waiting.remove((rid, turn))
        else:
            self.release(rid)  # it came in the same moment

    def use(self, rid: str) -> None:
        """The request is decoded."""
        if rid not in self.held and len(self.held) >= self.total:
            self.crowded.append(rid)
        self.held.setdefault(rid, asyncio.Event()).set()

    def release(self, rid: str) -> None:
        """The slot is the next one's."""
        if (event := self.held.pop(rid, None)) is not None:
            event.set()
        while self._waiting and len(self.held) < self.total:
            name, turn = self._waiting.popleft()
            if not turn.done():
                self.held[name] = asyncio.Event()
                turn.set_result(None)
