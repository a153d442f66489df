"""One try at serving a request on one decode node: a handoff, its decode leg and the slot they hold.

Invariant (R5): an attempt ends once, and the slot is free only when the node has finished the request or has
been told to give it up, or did not answer that within the timeout.
"""

import asyncio
import uuid
from contextlib import suppress

from router.config import Timeouts
from router.errors import ApiError
from router.fleet import Fleet
from router.gate import Lease
from router.stream import Line, TokenStream
from speedtier.errors import UpstreamError

__all__ = ["Attempt"]


class Attempt:
    """A lease in use. ``handoff`` is the id that both legs carry."""

    def __init__(self, fleet: Fleet, lease: Lease, timeouts: Timeouts) -> None:
        self.handoff = uuid.uuid4().hex
        self.node = lease.node
        self._fleet = fleet
        self._lease = lease
        self._timeouts = timeouts
        self._offered = False
        self._natural = False
        self._opening: asyncio.Task[TokenStream] | None = None
        self._stream: TokenStream | None = None

    def offer(self, tokens: int) -> dict[str, object]:
        """``kv_transfer_params`` for the prefill leg; from here on the node may hold state of this request.
        tokens: of the prompt."""
        self._offered = True
        return self.node.transfer_params(self.handoff, tokens)

    def open(self, order: dict[str, object], headers: dict[str, str]) -> None:
        """Start the decode leg without waiting for its answer."""
        self._opening = asyncio.create_task(self.node.decode({"rid": self.handoff, **order}, headers))

    async def lines(self) -> list[Line]:
        """The next lines of the decode leg; see ``TokenStream.lines``."""
        if self._stream is None:
            assert self._opening is not None, "open comes first"
            self._stream = await self._opening
        try:
            return await self._stream.lines()
        except UpstreamError:
            self.node.doubt()
            raise

    def natural(self) -> None:
        """The reply is complete, and by a reason that the node sees as well: it will say that it is done."""
        self._natural = True

    def end(self) -> None:
        """End the attempt; what must be waited for is waited for in the background."""
        if not self._offered:
            self._lease.release()
        elif self._stream is not None and self._stream.done:
            self._lease.release()
            self._fleet.background.start(self._stream.finish(self._timeouts.cancel))
        else:
            self._fleet.background.start(self._settle())

    async def _settle(self) -> None:
        try:
            stream = await self._opened()
            if stream is not None and self._natural:
                with suppress(TimeoutError, ApiError):
                    async with asyncio.timeout(self._timeouts.cancel):
                        await stream.drain()
            if stream is not None and stream.done:
                self._fleet.background.start(stream.finish(self._timeouts.cancel))
            else:
                if stream is not None:
                    stream.close()
                await self.node.cancel(self.handoff)
        finally:
            self._lease.release()
            if not self.node.known:
                self._fleet.recheck(self.node)

    async def _opened(self) -> TokenStream | None:
        if self._stream is None and self._opening is not None:
            self._opening.cancel()
            with suppress(ApiError, asyncio.CancelledError):
                return await self._opening
        return self._stream
