"""One try at serving a request on one decode node: a slot, the handoff that fills it, and the decode leg.

Invariant (R5): an attempt ends once, and the slot is free only when the node has finished the request or has
been told to give it up, or did not answer that within the timeout.
"""

import asyncio
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Protocol

from router.config import Timeouts
from router.errors import ApiError, PeerBroken, PeerTimeout
from router.gate import Lease
from router.hold import Hold
from router.stream import Line, TokenStream

__all__ = ["Attempt", "Owner"]


class Owner(Protocol):
    """Where an attempt's last steps run: they may outlast the request."""

    def settle(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run in the background."""


class Attempt:
    """A lease in use. ``handoff``: the id that both legs carry. ``answered``: when the decode leg was answered
    (``time.monotonic``), for which the node waits until it has the state."""

    def __init__(self, owner: Owner, lease: Lease, timeouts: Timeouts) -> None:
        self.handoff = uuid.uuid4().hex
        self.node = lease.node
        self._owner = owner
        self._lease = lease
        self._timeouts = timeouts
        self._hold: Hold | None = None
        self._offered = False
        self._natural = False
        self._opening: asyncio.Task[TokenStream] | None = None
        self._stream: TokenStream | None = None
        self.answered: float | None = None

    async def keep(self, wait_s: float) -> None:
        """Have the node keep a slot, waiting in its queue. Raises: Busy, PeerBroken, PeerTimeout."""
        self._hold = await self.node.hold(self.handoff, wait_s)

    def offer(self, tokens: int) -> dict[str, object]:
        """``kv_transfer_params`` for the prefill leg; from here on the node may hold state of this request.
        tokens: of the prompt."""
        self._offered = self._lease.used = True
        return self.node.transfer_params(self.handoff, tokens)

    def open(self, order: dict[str, object], headers: dict[str, str]) -> None:
        """Start the decode leg without waiting for its answer."""
        self._opening = asyncio.create_task(self.node.decode({"rid": self.handoff, **order}, headers))

    async def lines(self) -> list[Line]:
        """The next lines of the decode leg; see ``TokenStream.lines``."""
        if self._stream is None:
            assert self._opening is not None, "open comes first"
            self._stream = await self._opening
            self.answered = time.monotonic()
        try:
            found = await self._stream.lines()
        except (PeerBroken, PeerTimeout) as error:
            self.node.failed(error)
            raise
        if self._stream.done:
            self.node.health.worked()
        return found

    def natural(self) -> None:
        """The reply is complete, and by a reason that the node sees as well: it will say that it is done."""
        self._natural = True

    def end(self) -> "asyncio.Task[None] | None":
        """End the attempt. The task, if any, ends when the node has let go, within the timeout."""
        if not self._offered:
            if self._hold is not None:
                self._hold.close()
            self._lease.release()
            return None
        if self._stream is not None and self._stream.done:
            self._lease.release()
            return self._owner.settle(self._finish(self._stream))
        return self._owner.settle(self._settle())

    async def _finish(self, stream: TokenStream) -> None:
        await stream.finish(self._timeouts.cancel)
        if self._hold is not None:
            await self._hold.finish(self._timeouts.cancel)

    async def _settle(self) -> None:
        try:
            stream = await self._opened()
            if stream is not None and self._natural:
                with suppress(TimeoutError, ApiError):
                    async with asyncio.timeout(self._timeouts.cancel):
                        await stream.drain()
            if stream is not None and stream.done:
                self._owner.settle(self._finish(stream))
                return
            if stream is not None:
                stream.close()
            if self._hold is not None:
                self._hold.close()
            await self.node.cancel(self.handoff)
        finally:
            self._lease.release()

    async def _opened(self) -> TokenStream | None:
        if self._stream is None and self._opening is not None:
            self._opening.cancel()
            with suppress(ApiError, asyncio.CancelledError):
                return await self._opening
        return self._stream
