"""All decode nodes, and the way to a slot on one of them.

Invariant: a node that could not be reached gets no request until it has answered ``/capabilities`` again, and nobody
waits in the queue when no node is left.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

import msgspec

from router.affinity import Affinity
from router.attempt import Attempt
from router.background import Background
from router.config import DecodeNodeConfig, RouterConfig
from router.errors import BadRequest, Busy, NotConfigured, NotFound, PeerBroken, PeerTimeout
from router.gate import Gate, Lease, Queue
from router.node import Node
from router.revival import Revival

__all__ = ["Ask", "Fleet"]

DRAIN_S = 300.0
ASKING_S = 0.5
"""Beyond the connect timeout: for the question itself to have failed by then, with its reason."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a request needs of a slot. ``queue``: its class. ``prompt``, ``new``: tokens. ``keys``: ``Affinity.keys``.
    ``wait_s``: the longest wait, where it is shorter than the class's. ``avoid``: nodes to be taken only where there is
    no other. ``patient``: no other pool could serve it at once."""

    queue: str
    prompt: int
    new: int
    keys: list[bytes] = []
    wait_s: float | None = None
    avoid: frozenset[str] = frozenset()
    patient: bool = True


class Fleet:
    """The decode nodes behind one gate. ``make``: a node from its configuration."""

    def __init__(self, config: RouterConfig, make: Callable[[DecodeNodeConfig], Node], background: Background) -> None:
        self._make = make
        self._timeouts = config.timeouts
        self._background = background
        self.nodes: list[Node] = []
        queues = [
            Queue(
                each.name,
                config.queue_limit if each.queue_limit is None else each.queue_limit,
                config.queue_wait_s if each.queue_wait_s is None else each.queue_wait_s,
                each.weight,
            )
            for each in config.classes
        ]
        self.gate = Gate(self.nodes, queues)
        self.affinity = Affinity(config.session_headers)
        self._revival = Revival(self.nodes, self.gate, config.timeouts.connect + ASKING_S)
        for each in config.decode:
            self._join(make(each))

    # Nodes come and go

    def add(self, config: DecodeNodeConfig) -> Node:
        """Take a node into service. Raises: BadRequest when there is one of that address."""
        node = self._make(config)
        if any(each.name == node.name for each in self.nodes):
            raise BadRequest(f"decode node {node.name} is there already; remove it first", param="url")
        self._join(node)
        self._revival.begin(node)
        return node

    def _join(self, node: Node) -> None:
        node.lost = self._revival.begin
        self.nodes.append(node)

    def drain(self, name: str) -> Node:
        """Give the node no more requests; those that it has go on. Raises: NotFound."""
        node = self.find(name)
        node.draining = True
        return node

    def resume(self, name: str) -> Node:
        """Give the node requests again. Raises: NotFound."""
        node = self.find(name)
        node.draining = False
        self.gate.wake()
        return node

    async def remove(self, name: str, within_s: float = DRAIN_S) -> None:
        """Drain the node and drop it once its requests have ended, or after ``within_s`` seconds. Raises: NotFound."""
        node = self.drain(name)
        deadline = time.monotonic() + within_s
        while node.in_flight and time.monotonic() < deadline and node.draining:
            await asyncio.sleep(0.02)
        if node.draining and node in self.nodes:
            self.nodes.remove(node)
            self.affinity.forget(name)

    async def close(self) -> None:
        """Ask no node any more."""
        await self._revival.close()

    def find(self, name: str) -> Node:
        """The node of that address. Raises: NotFound."""
        found = next((node for node in self.nodes if node.name == name), None)
        if found is None:
            raise NotFound(f"no decode node is called {name!r}; there are {[node.name for node in self.nodes]}")
        return found

    # What they can do

    async def awake(self, *, patient: bool = True) -> list[Node]:
        """Nodes that take requests; see ``Revival.known``. Raises also: NotConfigured, there are none at all."""
        if not self.nodes:
            raise NotConfigured("no decode node is configured; set `decode` of the router", detour="health")
        return await self._revival.known(patient=patient)

    def settle(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run an attempt's last steps in the background."""
        return self._background.start(work)

    # Slots

    async def attempt(self, ask: Ask) -> Attempt:
        """A slot with room for the request, kept for it on its node.

        Raises:
            Busy: the queue is full, or the wait was too long.
            PeerBroken, PeerTimeout: no node is left.
        """

        def holds(node: Node) -> bool:
            return node.known and node.capabilities is not None and node.capabilities.max_tokens >= ask.prompt + ask.new

        others = any(holds(node) and node.name not in ask.avoid for node in self.nodes)

        def fits(node: Node) -> bool:
            return holds(node) and not (others and node.name in ask.avoid)

        queue = self.gate.queues[ask.queue]
        deadline = time.monotonic() + min(queue.wait_s, queue.wait_s if ask.wait_s is None else ask.wait_s)
        prefer = self.affinity.node(ask.keys)
        while True:
            left = max(0.0, deadline - time.monotonic())
            lease = await self.gate.acquire(ask.queue, fits, prefer, left)
            found: Attempt | None = None
            try:
                found = await self._kept(lease, 0.0)
            except Busy:  # the slot is another router's
                found = await self._first(lease, fits, deadline)
            except (PeerBroken, PeerTimeout):
                lease.release()
            except BaseException:
                lease.release()
                raise
            if found is not None:
                self.affinity.remember(ask.keys, found.node.name)
                return found
            if not any(fits(node) for node in self.nodes):
                await self.awake(patient=ask.patient)  # raises, or finds one again

    async def _first(self, lease: Lease, fits: Callable[[Node], bool], deadline: float) -> Attempt | None:
        """Wait at every node that has a place by our own count, in the queue that it keeps for all routers; the first
        that keeps a slot is taken. None: none of them can be reached any more. Raises: Busy."""
        leases, left = [lease], max(0.0, deadline - time.monotonic())

        def another(node: Node) -> bool:
            return fits(node) and node not in [each.node for each in leases]

        while (more := self.gate.take(another)) is not None:
            leases.append(more)
        tasks = {asyncio.create_task(self._waiting(each, left)) for each in leases}
        found: Attempt | None = None
        busy: Busy | None = None
        try:
            while tasks and found is None:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    error = task.exception()
                    busy = error if isinstance(error, Busy) else busy
                    if error is None and found is None:
                        found = task.result()
                    else:
                        _give_back(task)
        finally:
            for task in tasks:
                task.add_done_callback(_give_back)
                task.cancel()
        if found is None and busy is not None:
            raise Busy(busy.message, retry_after_s=self.gate.retry_after_s())
        return found

    async def _waiting(self, lease: Lease, wait_s: float) -> Attempt:
        try:
            return await self._kept(lease, wait_s)
        except BaseException:
            lease.release()
            raise

    async def _kept(self, lease: Lease, wait_s: float) -> Attempt:
        """The lease stays the caller's when this fails."""
        attempt = Attempt(self, lease, self._timeouts)
        await attempt.keep(wait_s)
        return attempt

    @staticmethod
    def clamp(nodes: Sequence[Node], prompt: int, new: int, asked: bool) -> int:
        """How many tokens a reply may have: ``new``, less where the client ``asked`` for no number of its
        own.

        Raises:
            BadRequest: prompt and reply do not fit the largest node; the message names its limit.
        """
        limit = max(node.capabilities.max_tokens for node in nodes if node.capabilities is not None)
        if prompt >= limit:
            raise BadRequest(
                f"The decode nodes' maximum context length is {limit} tokens. However, your "
                f"prompt contains {prompt} "
                "input tokens, which leaves no room for output. Please reduce the length of "
                "the input prompt.",
                param="input_tokens",
                detour="length",
            )
        if prompt + new <= limit:
            return new
        if asked:
            raise BadRequest(
                f"The decode nodes' maximum context length is {limit} tokens. However, you "
                f"requested {new} output "
                f"tokens and your prompt contains {prompt} input tokens. Please ask for "
                f"{limit - prompt} or less.",
                param="max_tokens",
                detour="length",
            )
        return limit - prompt


def _give_back(task: "asyncio.Task[Attempt]") -> None:
    """A slot that came in the moment in which its waiter had another already."""
    if not task.cancelled() and task.exception() is None:
        task.result().end()
