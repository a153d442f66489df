"""Asking decode nodes that are not known to be there, until they answer.

Invariant: a node that failed gets no request before it has answered again and its pause is over; while none is left,
nobody waits in the queue, and a request learns within the connect timeout whether one comes back.
"""

import asyncio
import time
from collections.abc import Sequence

from router.errors import ApiError, NotConfigured, PeerBroken, PeerTimeout
from router.gate import Gate
from router.node import Node

__all__ = ["Revival"]


class Revival:
    """Over ``nodes``, which may grow and shrink. ``within_s``: the longest that a request waits for one to be known."""

    def __init__(self, nodes: Sequence[Node], gate: Gate, within_s: float) -> None:
        self._nodes = nodes
        self._gate = gate
        self._within_s = within_s
        self._running: dict[Node, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: set[Node] = set()
        self._changed = asyncio.Event()

    def begin(self, node: Node) -> None:
        """Ask the node, at once; where it is being asked already, sooner than planned, unless it swallows questions."""
        if node not in self._running:
            self._running[node] = asyncio.Event()
            self._asking.add(node)
            task = asyncio.create_task(self._run(node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not node.fresh and not isinstance(node.failure, PeerTimeout):
            self._asking.add(node)
            self._running[node].set()

    async def known(self, *, patient: bool) -> list[Node]:
        """Nodes that take requests. Where there is none, waits for those that are being asked, and when ``patient`` for
        those that are left alone after they broke off.

        Raises:
            NotConfigured: every node is being drained.
            PeerBroken, PeerTimeout: none can be reached.
        """
        deadline = time.monotonic() + self._within_s
        for node in self._nodes:
            if not node.known and not node.draining and not node.fresh:
                self.begin(node)
        while True:
            if found := [node for node in self._nodes if node.known]:
                return found
            hopes = [node for node in self._nodes if not node.draining]
            hopes = [node for node in hopes if node in self._asking or (patient and node.fresh)]
            left = deadline - time.monotonic()
            if not hopes or left <= 0:
                raise self.failure()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Ask no more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def failure(self) -> ApiError:
        """Why there is no node."""
        failure = next((node.failure for node in self._nodes if node.failure is not None), None)
        if failure is None and not all(node.draining for node in self._nodes):
            return PeerTimeout("no decode node has said yet what it can do", detour="health", blame=False)
        if failure is None:
            return NotConfigured("every decode node is being drained; resume or add one", detour="health")
        kind = PeerTimeout if isinstance(failure, PeerTimeout) else PeerBroken
        return kind(failure.message, detour="health", blame=False)

    async def _run(self, node: Node) -> None:
        wanted = self._running[node]
        try:
            while node in self._nodes:
                try:
                    await node.ask()
                except ApiError as error:
                    node.failed(error)
                finally:
                    self._asking.discard(node)
                    wanted.clear()
                if node.fresh:
                    await asyncio.sleep(node.health.pause_s)
                    if node.fresh:
                        return
                    continue  # an older request has found it broken meanwhile
                self._tell()
                if not any(each.fresh for each in self._nodes):
                    self._gate.fail(self.failure())
                try:
                    async with asyncio.timeout(node.health.pause_s):
                        await wanted.wait()
                except TimeoutError:
                    pass
        finally:
            self._asking.discard(node)
            del self._running[node]
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._gate.wake()
