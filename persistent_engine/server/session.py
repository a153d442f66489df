"""One `/pd/decode` from its admission to its end.

Invariant: however it ends (reply complete, error, cancel, client gone), the slot is released, the engine is between
requests and the handoff has an end, exactly once.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from persistent_engine.runtime import EngineBusy, EngineFailed, FinishReason, Job
from persistent_engine.server.errors import Answer
from persistent_engine.server.node import DecodeNode
from persistent_engine.server.request import DecodeRequest
from speedtier.errors import ConfigError
from tilert_connector import HandoffBusy, HandoffFailed, HandoffTimeout, Held

__all__ = ["Session", "Sessions"]


@dataclasses.dataclass
class Session:
    """A request being served. Lives in one task, which `cancel` interrupts."""

    node: DecodeNode
    request: DecodeRequest
    turn: asyncio.Lock
    started: float = dataclasses.field(default_factory=time.monotonic)
    waited: float = 0.0
    ids: list[int] = dataclasses.field(default_factory=list)
    reason: FinishReason = "cancelled"
    cancel_reason: str = ""
    task: "asyncio.Task[Any] | None" = None
    over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def cancel(self, reason: str) -> None:
        """Interrupt the session's task; it answers `cancelled`."""
        self.cancel_reason = reason
        if self.task is not None:
            self.task.cancel()

    async def gone(self, timeout_s: float) -> None:
        """Wait, within a bound, until the session holds nothing any more."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), timeout_s)

    @property
    def tokens(self) -> int:
        """How many the engine has given."""
        return len(self.ids)

    @property
    def stop_reason(self) -> int | None:
        """The stop token id that ended the reply; None at the end of sequence, as vLLM has it."""
        last = self.ids[-1] if self.ids else -1
        return last if self.reason == "stop" and last in self.request.sampling.stop_token_ids else None

    def timing_ms(self) -> dict[str, float]:
        """Milliseconds spent waiting for state, decoding, in total."""
        total = time.monotonic() - self.started
        spans = {"wait": self.waited, "decode": total - self.waited, "total": total}
        return {name: round(seconds * 1e3, 3) for name, seconds in spans.items()}

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[Held]:
        """The committed state; its slot is released at the end, whatever happens. Raises: Answer 504, 502, 429, 400."""
        held = await self._state()
        try:
            yield held
        finally:
            self.node.receiver.release(held, self._in_slot())

    def _in_slot(self) -> list[int]:
        """The tokens behind the prompt whose state the engine has computed: all but the last, which it only chose."""
        return [self.request.first_token_id, *self.ids[:-1]] if self.ids else []

    async def _state(self) -> Held:
        node, rid = self.node, self.request.rid
        limit = self.request.timeout_s or node.config.state_wait_s
        try:
            held = await node.receiver.committed(rid, limit)
        except HandoffTimeout as error:
            await node.receiver.cancel(rid, "the decode request gave up waiting")
            raise Answer(504, "kv_transfer_timeout", str(error)) from error
        except HandoffBusy as error:
            raise Answer(429, "busy", f"all {node.config.slots} slots are taken; {error}") from error
        except HandoffFailed as error:
            raise Answer(502, "kv_transfer_failed", str(error)) from error
        except asyncio.CancelledError:
            await asyncio.shield(node.receiver.cancel(rid, self.cancel_reason or "the client went away"))
            raise
        self.waited = time.monotonic() - self.started
        room = node.capacity - held.tokens
        if self.request.max_tokens > room:
            node.receiver.release(held)
            message = f"max_tokens is {self.request.max_tokens}; {held.tokens} prompt tokens leave {room} on this node"
            raise Answer(400, "context_length_exceeded", message)
        return held

    async def decode(self, held: Held) -> AsyncGenerator[list[int], None]:
        """Token ids as they come. Close it before `held` is released. Raises: Answer 500 when the engine fails."""
        request = self.request
        job = Job(
            slot=held.slot,
            position=held.tokens,
            token=request.first_token_id,
            most=request.max_tokens,
            sampling=request.sampling.engine_sampling(),
        )
        try:
            async with self.turn, contextlib.aclosing(self.node.engine.decode(job, self._ended)) as source:
                async for ids in source:
                    self.ids += ids
                    yield ids
        except EngineBusy as error:
            raise Answer(429, "busy", str(error)) from error
        except ConfigError as error:
            raise Answer(400, "invalid_request", str(error)) from error
        except EngineFailed as error:
            raise Answer(500, "engine_failed", str(error)) from error

    def _ended(self, reason: FinishReason) -> None:
        self.reason = reason


class Sessions:
    """The sessions of a node. Slots are given to handoffs, in the order of their offers, and to nothing else: a session
    that waits takes no place that another, whose state is here, would need. Several routers need no agreement."""

    def __init__(self, node: DecodeNode) -> None:
        self.node = node
        self.open: dict[str, Session] = {}
        self._turn = asyncio.Lock()

    def admit(self, request: DecodeRequest) -> Session:
        """Raises: Answer 429 when too many wait, 409 when this one is served already, 400, 500."""
        vocabulary = self.node.facts.vocabulary
        if request.first_token_id >= vocabulary:
            raise Answer(400, "invalid_request", f"first_token_id is {request.first_token_id}, vocabulary {vocabulary}")
        if request.rid in self.open:
            raise Answer(409, "duplicate_rid", f"rid {request.rid!r} is being decoded")
        if self.node.engine.failure is not None:
            raise Answer(500, "engine_failed", self.node.engine.failure)
        most = self.node.config.slots + self.node.config.receiver.max_handoffs
        if len(self.open) >= most:
            raise Answer(429, "busy", f"{most} requests wait for state or slots; try again or use another node")
        session = Session(self.node, request, self._turn)
        self.open[request.rid] = session
        return session

    def leave(self, session: Session) -> None:
        """The session is over."""
        self.open.pop(session.request.rid, None)
        session.over.set()
