"""The gate: one request in flight per decode slot, and a queue per traffic class before it.

Invariant (R4): within a class waiters are served first come, first served; while several classes wait, slots go to them
by weight (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996). A freed slot wakes the next one at once; a waiter
that leaves gives up its place, and a slot that was handed to it in the same moment goes to the next. Queue length and
wait are bounded.
"""

import asyncio
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from router.errors import ApiError, Busy
from router.node import Node

__all__ = ["Gate", "Lease", "Queue"]

Fits = Callable[[Node], bool]
LEARN = 0.2
"""How much the last request counts in the mean time for which a slot is held."""


class Lease:
    """One slot of one node, until released."""

    def __init__(self, gate: "Gate", node: Node) -> None:
        self._gate: Gate | None = gate
        self.node = node
        self.since = gate.clock()
        self.used = False

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate._release(self)


@dataclass(slots=True)
class _Waiter:
    fits: Fits
    prefer: str | None
    granted: "asyncio.Future[Lease]"


@dataclass(slots=True)
class Queue:
    """The waiters of one class: at most ``limit``, each for at most ``wait_s`` seconds; ``weight`` is its share."""

    name: str
    limit: int
    wait_s: float
    weight: float = 1.0
    waiting: deque[_Waiter] = field(default_factory=deque)
    turn: float = 0.0


class Gate:
    """Slots of all decode nodes and the queues before them.

    ``nodes`` may grow and shrink; a node whose slots are not known yet has none.
    """

    def __init__(
        self, nodes: Sequence[Node], queues: Sequence[Queue], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.nodes = nodes
        self.clock = clock
        self.queues = {queue.name: queue for queue in queues}
        self._turn = 0.0
        self._leases: set[Lease] = set()
        self.mean_s = 1.0

    @property
    def waiting(self) -> int:
        """How many wait now, in all classes."""
        return sum(len(queue.waiting) for queue in self.queues.values())

    async def acquire(self, name: str, fits: Fits, prefer: str | None = None, wait_s: float | None = None) -> Lease:
        """A slot on a node that ``fits``, for the class ``name``; on the node ``prefer`` if that is free.

        Raises:
            Busy: the queue is full, or the wait was longer than the class's, or than ``wait_s`` seconds.
        """
        queue = self.queues[name]
        if (lease := self.take(fits, prefer)) is not None:
            return lease
        wait_s = queue.wait_s if wait_s is None else min(wait_s, queue.wait_s)
        if len(queue.waiting) >= queue.limit:
            text = f"every decode slot is taken and {queue.limit} requests of class {name!r} wait already (queue_limit)"
            raise Busy(text, retry_after_s=self.retry_after_s())
        waiter = _Waiter(fits, prefer, asyncio.get_running_loop().create_future())
        queue.waiting.append(waiter)
        try:
            async with asyncio.timeout(wait_s):
                return await waiter.granted
        except TimeoutError:
            self._leave(queue, waiter)
            text = f"no decode slot became free for class {name!r} within {wait_s:g} s (queue_wait_s)"
            raise Busy(text, retry_after_s=self.retry_after_s()) from None
        except asyncio.CancelledError:
            self._leave(queue, waiter)
            raise

    def take(self, fits: Fits, prefer: str | None = None) -> Lease | None:
        """A free slot on a node that ``fits``, at once or not at all."""
        free = [node for node in self.nodes if node.free > 0 and fits(node)]
        if not free:
            return None
        node = max(free, key=lambda each: (each.name == prefer, each.free))  # the first of equals
        node.in_flight += 1
        lease = Lease(self, node)
        self._leases.add(lease)
        return lease

    def wake(self) -> None:
        """Hand free slots to waiters in their order; for a release, and when a node's slots become known."""
        while any(node.free > 0 for node in self.nodes) and self._wake_one():
            pass

    def fail(self, error: ApiError) -> None:
        """Send every waiter away with ``error``: no node is left that could serve one."""
        for queue in self.queues.values():
            while queue.waiting:
                granted = queue.waiting.popleft().granted
                if not granted.done():
                    granted.set_exception(error)

    def retry_after_s(self) -> int:
        """Whole seconds until a slot frees for one who comes now: after those who wait, each of whom will hold a slot
        for as long as the last ones did."""
        now = self.clock()
        slots = [max(0.0, self.mean_s - (now - lease.since)) for lease in self._leases]
        if not slots:
            return 1
        heapq.heapify(slots)
        for _ in range(self.waiting):
            heapq.heapreplace(slots, slots[0] + self.mean_s)
        return max(1, math.ceil(slots[0]))

    def _wake_one(self) -> bool:
        queues = [queue for queue in self.queues.values() if queue.waiting]
        for queue in sorted(queues, key=lambda each: max(each.turn, self._turn)):
            for waiter in list(queue.waiting):
                if waiter.granted.done():
                    continue
                if (lease := self.take(waiter.fits, waiter.prefer)) is None:
                    continue
                queue.waiting.remove(waiter)
                self._turn = max(queue.turn, self._turn)
                queue.turn = self._turn + 1 / queue.weight
                waiter.granted.set_result(lease)
                return True
        return False

    def _leave(self, queue: Queue, waiter: _Waiter) -> None:
        if waiter in queue.waiting:
            queue.waiting.remove(waiter)
        elif waiter.granted.done() and not waiter.granted.cancelled() and not waiter.granted.exception():
            waiter.granted.result().release()

    def _release(self, lease: Lease) -> None:
        self._leases.discard(lease)
        if lease.used:
            self.mean_s += LEARN * (self.clock() - lease.since - self.mean_s)
        lease.node.in_flight -= 1
        self.wake()
