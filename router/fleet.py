"""All decode nodes, and the way to a slot on one of them.

Invariant: a node that could not be reached gets no request until it has answered ``/capabilities`` again, and
nobody waits in the queue when no node is left.
"""

import asyncio
from collections.abc import Sequence

from router.background import Background
from router.config import RouterConfig
from router.errors import ApiError, BadRequest, NotConfigured
from router.gate import Gate, Lease
from router.node import Node

__all__ = ["Fleet"]


class Fleet:
    """The decode nodes behind one gate."""

    def __init__(self, config: RouterConfig, nodes: Sequence[Node], background: Background) -> None:
        self.nodes = nodes
        self.gate = Gate(nodes, config.queue_limit, config.queue_wait_s)
        self.background = background

    async def awake(self) -> list[Node]:
        """Nodes that have said what they can do; waits for those that have not only when there is no other.

        Raises:
            NotConfigured: there are no nodes.
            PeerBroken, PeerTimeout: none can be reached.
        """
        if not self.nodes:
            raise NotConfigured("no decode node is configured; set `decode` of the router")
        if not all(node.known for node in self.nodes):
            checks = [self.recheck(node) for node in self.nodes if not node.known]
            if not any(node.known for node in self.nodes):
                await asyncio.gather(*checks)
        if known := [node for node in self.nodes if node.known]:
            return known
        raise self._failure()

    def recheck(self, node: Node) -> "asyncio.Task[None]":
        """Ask a node again in the background."""
        return self.background.start(self._recheck(node))

    async def _recheck(self, node: Node) -> None:
        try:
            await node.ask()
        except ApiError as error:
            node.failure = error
            if not any(each.known for each in self.nodes):
                self.gate.fail(error)
        else:
            self.gate.wake()

    def _failure(self) -> ApiError:
        return next(node.failure for node in self.nodes if node.failure is not None)

    async def lease(self, prompt: int, new: int) -> Lease:
        """A slot with room for ``prompt`` tokens and ``new`` more; see ``Gate.acquire``."""

        def fits(node: Node) -> bool:
            return node.known and node.capabilities is not None and node.capabilities.max_tokens >= prompt + new

        return await self.gate.acquire(fits)

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
            )
        return limit - prompt
