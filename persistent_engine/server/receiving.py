"""The seam between the decode node's HTTP side and the receiver of handoffs, with a public fake."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tilert_connector import HandoffBusy, HandoffFailed, HandoffTimeout, Held
from tilert_connector.errors import NO_SLOT

__all__ = ["FakeReceiver", "Receiving"]


class Receiving(Protocol):
    """What sessions ask of a receiver; see `tilert_connector.Receiver`."""

    @property
    def instance(self) -> str:
        """What the receiver calls itself, new at each start."""

    @property
    def ctrl_port(self) -> int:
        """Control port."""

    @property
    def data_port(self) -> int:
        """Data port."""

    async def start(self) -> None:
        """Listen."""

    async def close(self) -> None:
        """Stop listening; idempotent."""

    async def committed(self, handoff: str, timeout_s: float) -> Held:
        """Wait for a handoff's state. Raises: HandoffTimeout, HandoffFailed."""

    async def reserve(self, handoff: str, wait_s: float) -> None:
        """Keep a slot for a handoff before it is offered. Raises: HandoffBusy."""

    async def offered(self, handoff: str) -> None:
        """Wait until a reserved handoff was offered, or ended."""

    def release(self, held: Held, generated: Sequence[int] = ()) -> None:
        """Give the slot back; idempotent. generated: tokens behind the prompt whose state it holds too."""

    async def cancel(self, handoff: str, reason: str) -> bool:
        """End a handoff; whether it was open."""

    def status(self) -> dict[str, Any]:
        """Plain data."""


class FakeReceiver:
    """Handoffs are committed by `commit` or failed by `fail`. `held` are the slots in use, by handoff."""

    instance = "fake"
    ctrl_port = 1
    data_port = 2

    def __init__(self, slots: int = 1) -> None:
        self._free = list(range(slots))
        self._generations = itertools.count(1)
        self._ends: dict[str, asyncio.Future[int]] = {}
        self.held: dict[str, Held] = {}
        self.reserved: dict[str, asyncio.Event] = {}
        """Handoffs that a slot is kept for, and whether they came."""
        self.cancelled: list[str] = []
        self.kept: dict[str, list[int]] = {}
        """By handoff, the tokens whose state its slot was given back with."""

    def _came(self, handoff: str) -> None:
        if handoff in self.reserved:
            self.reserved.pop(handoff).set()

    async def reserve(self, handoff: str, wait_s: float) -> None:
        """As `Receiving.reserve`."""
        deadline = time.monotonic() + wait_s
        while len(self._free) <= len(self.reserved):
            if time.monotonic() >= deadline:
                raise HandoffBusy(handoff, NO_SLOT)
            await asyncio.sleep(0.001)
        self.reserved[handoff] = asyncio.Event()

    async def offered(self, handoff: str) -> None:
        """As `Receiving.offered`."""
        if handoff in self.reserved:
            await self.reserved[handoff].wait()

    def _end(self, handoff: str) -> asyncio.Future[int]:
        return self._ends.setdefault(handoff, asyncio.get_running_loop().create_future())

    def commit(self, handoff: str, tokens: int = 10) -> None:
        """The state of `tokens` tokens has come."""
        self._came(handoff)
        self._end(handoff).set_result(tokens)

    def fail(self, handoff: str, reason: str) -> None:
        """The handoff failed."""
        kind = HandoffBusy if reason.startswith(NO_SLOT) else HandoffFailed
        self._end(handoff).set_exception(kind(handoff, reason))

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def committed(self, handoff: str, timeout_s: float) -> Held:
        """As `Receiving.committed`; waits also for a slot."""
        try:
            tokens = await asyncio.wait_for(asyncio.shield(self._end(handoff)), timeout_s)
        except TimeoutError:
            raise HandoffTimeout(f"handoff {handoff!r} was not committed within {timeout_s:g} s") from None
        async with asyncio.timeout(timeout_s):
            while not self._free:
                await asyncio.sleep(0.001)
        slot = self._free.pop(0)
        self.held[handoff] = Held(handoff=handoff, slot=slot, generation=next(self._generations), tokens=tokens)
        return self.held[handoff]

    def release(self, held: Held, generated: Sequence[int] = ()) -> None:
        """As `Receiving.release`."""
        if self.held.pop(held.handoff, None) is not None:
            self.kept[held.handoff] = list(generated)
            self._free.append(held.slot)

    async def cancel(self, handoff: str, reason: str) -> bool:
        """As `Receiving.cancel`; a handoff is open until it was taken."""
        self._came(handoff)
        if handoff in self.cancelled or handoff in self.held:
            return False
        self.cancelled.append(handoff)
        return True

    def status(self) -> dict[str, Any]:
        """As `Receiving.status`."""
        ended = {"committed": 0, "failed": 0, "cancelled": len(self.cancelled)}
        return {
            "slots_held": {str(one.slot): one.handoff for one in self.held.values()},
            "ended": ended,
            "landed_bytes": 0,
            "resident": {"0": 7},
            "messages": {"refused": 2, "refused_by_code": {"ticket": 2}, "malformed": 0, "ignored": 0},
            "commit_seconds": {"buckets": [["1.0", 1], ["+Inf", 1]], "sum": 0.5},
        }
