"""The gate: one request in flight per decode slot.

Invariant (R4): waiters are served first come, first served; a freed slot wakes the next one at once; a waiter
that leaves gives up its place, and a slot that was handed to it in the same moment goes to the next. Queue
length and wait are bounded.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from router.errors import ApiError, Busy
from router.node import Node

__all__ = ["Gate", "Lease"]


class Lease:
    """One slot of one node, until released."""

    def __init__(self, gate: "Gate", node: Node) -> None:
        self._gate: Gate | None = gate
        self.node = node

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate._release(self.node)


class _Waiter:
    __slots__ = ("fits", "granted")

    def __init__(self, fits: Callable[[Node], bool], granted: "asyncio.Future[Lease]") -> None:
        self.fits = fits
        self.granted = granted


class Gate:
    """Slots of all decode nodes and the queue before them.

    Args:
        nodes: the decode nodes; a node whose slots are not known yet has none.
        limit: how many may wait.
        wait_s: the longest wait, in seconds.
    """

    def __init__(self, nodes: Sequence[Node], limit: int, wait_s: float) -> None:
        self.nodes = nodes
        self._limit = limit
        self._wait_s = wait_s
        self._waiting: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    async def acquire(self, fits: Callable[[Node], bool]) -> Lease:
        """A slot on a node that ``fits``.

        Raises:
            Busy: the queue is full, or the wait was too long.
        """
        if (lease := self._take(fits)) is not None:
            return lease
        if len(self._waiting) >= self._limit:
            raise Busy(f"every decode slot is taken and {self._limit} requests wait already (queue_limit)")
        waiter = _Waiter(fits, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                return await waiter.granted
        except TimeoutError:
            self._leave(waiter)
            raise Busy(f"no decode slot became free within {self._wait_s:g} s (queue_wait_s)") from None
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def wake(self) -> None:
        """Hand free slots to waiters in their order; for a release, and when a node's slots become known."""
        for waiter in list(self._waiting):
            if waiter.granted.done():
                continue
            if (lease := self._take(waiter.fits)) is None:
                if not any(node.free for node in self.nodes):
                    return
                continue
            self._waiting.remove(waiter)
            waiter.granted.set_result(lease)

    def fail(self, error: ApiError) -> None:
        """Send every waiter away with ``error``: no node is left that could serve one."""
        while self._waiting:
            granted = self._waiting.popleft().granted
            if not granted.done():
                granted.set_exception(error)

    def _take(self, fits: Callable[[Node], bool]) -> Lease | None:
        free = [node for node in self.nodes if node.free > 0 and fits(node)]
        if not free:
            return None
        node = max(free, key=lambda each: each.free)  # the first of equals
        node.in_flight += 1
        return Lease(self, node)

    def _leave(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        elif waiter.granted.done() and not waiter.granted.cancelled() and not waiter.granted.exception():
            waiter.granted.result().release()

    def _release(self, node: Node) -> None:
        node.in_flight -= 1
        self.wake()
