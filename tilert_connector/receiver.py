"""The decode node's end: slots, admission, generations, commit.

Invariants: no byte lands without an acceptance that names handoff, rank and generation; a handoff ends
exactly once; a slot is given away only after every writer that was admitted to it has been stopped; each
state has a timer, so that no peer's silence keeps a slot.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, Literal

import msgspec

from speedtier.errors import ConfigError
from tilert_connector.control import ControlSocket
from tilert_connector.errors import HandoffFailed, HandoffTimeout
from tilert_connector.inbound import Inbound, State, Writing
from tilert_connector.layout.fingerprint import Fingerprint, difference
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.protocol import (
    Accepted,
    Done,
    Ended,
    FromPrefill,
    Hello,
    Offer,
    Refused,
    Welcome,
    Withdraw,
)
from tilert_connector.slots import Slots
from tilert_connector.transport.base import Grant, Report, Sink
from tilert_connector.transport.tcp_sink import TcpSink

__all__ = ["Held", "Receiver", "ReceiverConfig"]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Port = Annotated[int, msgspec.Meta(ge=0, lt=65536)]


class ReceiverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a decode node listens for handoffs, and how long each state may last."""

    host: Annotated[str, msgspec.Meta(description="Address to listen on for handoffs.")] = "127.0.0.1"
    ctrl_port: Annotated[Port, msgspec.Meta(description="Control port; 0 takes a free one.")] = 0
    data_port: Annotated[Port, msgspec.Meta(description="Data port; 0 takes a free one.")] = 0
    handoff_s: Annotated[
        Seconds, msgspec.Meta(description="Seconds from the offer of a handoff until it must be committed.")
    ] = 300.0
    slot_wait_s: Annotated[
        Seconds, msgspec.Meta(description="Seconds that an offer may wait for a free slot.")
    ] = 30.0
    claim_s: Annotated[
        Seconds, msgspec.Meta(description="Seconds that committed state waits to be asked for.")
    ] = 60.0
    drain_s: Annotated[
        Seconds, msgspec.Meta(description="Seconds that cancelling waits for a writer to stop.")
    ] = 2.0
    max_handoffs: Annotated[
        int, msgspec.Meta(ge=1, description="Handoffs that may be open at a time; more are refused.")
    ] = 256
    remember: Annotated[
        int, msgspec.Meta(ge=1, description="Ended handoffs kept, so that what comes late is refused.")
    ] = 4096


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Committed state that its taker owns until `Receiver.release`. tokens: how many the slot holds."""

    handoff: str
    slot: int
    generation: int
    tokens: int


class Receiver:
    """Lives on one asyncio loop. `slots`: writable, `layout.slot_bytes(capacity)` bytes each."""

    def __init__(
        self,
        config: ReceiverConfig,
        layout: KvLayout,
        fingerprint: Fingerprint,
        slots: Sequence[memoryview],
        capacity: int,
        sink: Sink | None = None,
    ) -> None:
        need = layout.slot_bytes(capacity)
        for index, slot in enumerate(slots):
            if slot.nbytes < need or slot.readonly:
                raise ConfigError(f"slots[{index}] has {slot.nbytes} bytes, must be writable and have {need}")
        self._config = config
        self._layout = layout
        self._fingerprint = fingerprint
        self._capacity = capacity
        self._slots = Slots(len(slots))
        self._sink = sink or TcpSink(layout, slots, capacity, config.host, config.data_port)
        self._control = ControlSocket(config.host, config.ctrl_port, self._on_message)
        self._instance = secrets.token_hex(8)
        self._greeted: OrderedDict[bytes, str] = OrderedDict()
        self._open: dict[str, Inbound] = {}
        self._ended: OrderedDict[str, Inbound] = OrderedDict()
        self._queue: list[Inbound] = []
        self._grants: dict[int, tuple[Inbound, Writing]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()

    @property
    def ctrl_port(self) -> int:
        """The real control port, after `start`."""
        return self._control.port

    @property
    def data_port(self) -> int:
        """The real data port, after `start`."""
        return self._sink.describe().port

    async def start(self) -> None:
        """Bind both ports. Raises ConfigError if one is taken."""
        await self._sink.start()
        try:
            self._control.start()
        except ConfigError:
            await self._sink.close()
            raise

    async def close(self) -> None:
        """End every handoff, stop every writer, release both ports."""
        for inbound in list(self._open.values()):
            self._end(inbound, "failed", "the decode node is shutting down")
        await self._control.close()
        await self._sink.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def committed(self, handoff: str, timeout_s: float) -> Held:
        """Wait until the whole state of this handoff lies in a slot; the caller then owns the slot.

        Waits also for a handoff that was not offered yet. Raises HandoffTimeout, HandoffFailed. A caller that
        gives up must `cancel`.
        """
        inbound = self._find(handoff)
        try:
            async with asyncio.timeout(timeout_s):
                await inbound.changed.wait()
        except TimeoutError:
            raise HandoffTimeout(
                f"handoff {handoff!r} was not committed within {timeout_s:g} s: {inbound.state.value}"
            ) from None
        # No await from here on: between the check and the claim nothing else may run.
        if inbound.state is State.COMMITTED:
            self._clear_timer(inbound)
            inbound.state = State.TAKEN
            return Held(
                handoff=handoff, slot=inbound.slot, generation=inbound.generation, tokens=inbound.tokens
            )
        reason = inbound.reason or f"its state was {inbound.state.value} already"
        raise HandoffFailed(handoff, reason)

    def release(self, held: Held) -> None:
        """The slot is free again. Repeated and late calls do nothing."""
        inbound = self._open.get(held.handoff)
        if inbound is not None and inbound.state is State.TAKEN and inbound.generation == held.generation:
            self._forget(inbound, "committed", "")
            self._slots.release(held.slot, held.generation)
            self._give_slots()

    async def cancel(self, handoff: str, reason: str) -> bool:
        """End a handoff that nobody has taken; one that was never offered is refused when it comes.

        Returns after its writers have stopped, within `drain_s`; a writer that does not stop keeps its slot
        out of use. False: it had ended or been taken before.
        """
        if handoff in self._ended:
            return False
        inbound = self._find(handoff)
        if inbound.state in (State.TAKEN, State.ENDED):
            return False
        task = self._end(inbound, "cancelled", reason)
        if task is not None:
            await asyncio.wait([task], timeout=self._config.drain_s)
        return True

    def status(self) -> dict[str, Any]:
        """Plain data: slots and their generations, open handoffs by state, ended ones by end, bytes."""
        states = Counter(inbound.state.name.lower() for inbound in self._open.values())
        return {
            "slots": self._slots.total,
            "slots_held": {str(slot): gen for slot, gen in self._slots.holders().items()},
            "open": dict(states),
            "ended": {k: self._counts[k] for k in ("committed", "failed", "cancelled")},
            "landed_bytes": self._counts["landed_bytes"],
            "refused": self._counts["refused"],
            "malformed": self._control.malformed,
            "ignored": self._counts["ignored"],
            "prefill_instances": sorted(set(self._greeted.values())),
        }

    # Messages

    def _on_message(self, peer: bytes, message: FromPrefill) -> None:
        match message:
            case Hello():
                self._on_hello(peer, message)
            case Offer():
                self._on_offer(peer, message)
            case Done():
                self._on_done(peer, message)
            case Withdraw():
                inbound = self._find(message.handoff)
                owners = {writing.peer for writing in inbound.writings.values()}
                if owners and peer not in owners:
                    self._counts["ignored"] += 1
                elif inbound.state in (State.EXPECTED, State.WAITING, State.WRITING):
                    self._end(inbound, "failed", f"withdrawn by the prefill node: {message.reason}")

    def _on_hello(self, peer: bytes, hello: Hello) -> None:
        found = difference(self._fingerprint, hello.fingerprint)
        if found is not None:
            field, ours, theirs = found
            reason = f"fingerprint differs in {field}: decode node has {ours!r}, prefill node has {theirs!r}"
            self._refuse(peer, Refused(code="fingerprint", reason=reason))
            return
        self._greeted[peer] = hello.instance
        if len(self._greeted) > self._config.remember:
            self._greeted.popitem(last=False)
        endpoint = self._sink.describe()
        welcome = Welcome(
            instance=self._instance,
            transport=endpoint.transport,
            data_port=endpoint.port,
            capacity=self._capacity,
        )
        self._control.send(peer, welcome)

    def _on_offer(self, peer: bytes, offer: Offer) -> None:
        code, reason = self._objection(peer, offer)
        if code is not None:
            refused = Refused(
                code=code, reason=reason, handoff=offer.handoff, rank=offer.rank, round=offer.round
            )
            self._refuse(peer, refused)
            return
        inbound = self._find(offer.handoff)
        if offer.tokens > self._capacity:
            reason = f"prompt of {offer.tokens} tokens, this decode node holds at most {self._capacity}"
            inbound.writings[offer.rank] = Writing(peer, offer)
            self._end(inbound, "failed", reason)
            return
        known = inbound.writings.get(offer.rank)
        writing = inbound.writings[offer.rank] = Writing(peer, offer)
        inbound.tokens = offer.tokens
        if inbound.state is State.EXPECTED:
            inbound.state = State.WAITING
            self._set_timer(inbound, self._config.slot_wait_s, "no slot was free in time")
            self._queue.append(inbound)
            self._give_slots()
        elif inbound.state is State.WRITING:
            self._spawn(self._admit(inbound, writing, known.generation if known else 0))

    def _objection(
        self, peer: bytes, offer: Offer
    ) -> tuple[Literal["hello", "ended", "busy", "malformed", "conflict"] | None, str]:
        if peer not in self._greeted:
            return "hello", "no hello of yours is known here: the decode node may have restarted"
        inbound = self._ended.get(offer.handoff) or self._open.get(offer.handoff)
        if inbound is None:
            if len(self._open) >= self._config.max_handoffs:
                return "busy", f"{self._config.max_handoffs} handoffs are open already"
            inbound = Inbound(offer.handoff)
        if inbound.state in (State.COMMITTED, State.TAKEN, State.ENDED):
            return "ended", f"it is {inbound.outcome or inbound.state.value} already {inbound.reason}"
        previous, count = 0, len(self._layout.planes)
        for start, stop in offer.planes:
            if start < previous or stop <= start or stop > count:
                return "malformed", f"planes {offer.planes} are not ascending ranges of {count}"
            previous = stop
        objection = inbound.objection(offer, peer)
        return ("conflict", objection) if objection else (None, "")

    def _on_done(self, peer: bytes, done: Done) -> None:
        inbound, writing = self._grants.get(done.generation, (None, None))
        if inbound is None or writing is None or inbound.handoff != done.handoff or writing.peer != peer:
            self._counts["ignored"] += 1
            return
        writing.done = True
        self._commit_if_complete(inbound)

    def _on_report(self, report: Report) -> None:
        inbound, writing = self._grants.get(report.generation, (None, None))
        if inbound is None or writing is None:
            return
        self._counts["landed_bytes"] += report.landed_bytes
        if not report.landed:
            self._end(inbound, "failed", report.reason)
            return
        writing.landed = True
        self._commit_if_complete(inbound)

    # States

    def _find(self, handoff: str) -> Inbound:
        """The handoff's record; a new one if nobody spoke of it before."""
        inbound = self._ended.get(handoff) or self._open.get(handoff)
        if inbound is None:
            inbound = self._open[handoff] = Inbound(handoff)
            self._set_timer(inbound, self._config.handoff_s, "the prefill node never offered it")
        return inbound

    def _give_slots(self) -> None:
        """Admit as many waiting handoffs as slots are free, first come first served."""
        while self._queue:
            taken = self._slots.take()
            if taken is None:
                return
            inbound = self._queue.pop(0)
            inbound.slot, inbound.generation = taken
            inbound.state = State.WRITING
            self._set_timer(inbound, self._config.handoff_s, "it was not written in time")
            for writing in inbound.writings.values():
                self._spawn(self._admit(inbound, writing, 0))

    async def _admit(self, inbound: Inbound, writing: Writing, before: int) -> None:
        """Let a rank write, after its earlier generation `before` (0: none) was stopped."""
        while before and not await self._sink.revoke(before, self._config.drain_s):
            pass
        self._grants.pop(before, None)
        offer = writing.offer
        if inbound.state is not State.WRITING or inbound.writings.get(offer.rank) is not writing:
            return
        writing.generation = self._slots.generation()
        self._grants[writing.generation] = inbound, writing
        key = secrets.token_bytes(16)
        grant = Grant(
            handoff=offer.handoff,
            rank=offer.rank,
            generation=writing.generation,
            key=key,
            slot=inbound.slot,
            tokens=offer.tokens,
            planes=offer.planes,
        )
        self._sink.admit(grant, self._on_report)
        accepted = Accepted(
            handoff=offer.handoff, rank=offer.rank, round=offer.round, generation=writing.generation, key=key
        )
        self._control.send(writing.peer, accepted)

    def _commit_if_complete(self, inbound: Inbound) -> None:
        if inbound.state is not State.WRITING or not inbound.complete(len(self._layout.planes)):
            return
        inbound.state = State.COMMITTED
        self._set_timer(inbound, self._config.claim_s, "nobody asked for the committed state")
        for writing in inbound.writings.values():
            self._grants.pop(writing.generation, None)
            self._control.send(writing.peer, Ended(handoff=inbound.handoff, state="committed"))
        inbound.changed.set()

    def _end(
        self, inbound: Inbound, outcome: Literal["failed", "cancelled"], reason: str
    ) -> asyncio.Task[None] | None:
        """The one end without a commit. The task, if any, frees the slot once all writers stopped."""
        told_before = inbound.state is State.COMMITTED
        self._forget(inbound, outcome, reason)
        if not told_before:
            for writing in inbound.writings.values():
                self._control.send(
                    writing.peer, Ended(handoff=inbound.handoff, state=outcome, reason=reason[:2048])
                )
        if inbound in self._queue:
            self._queue.remove(inbound)
        return self._spawn(self._drain(inbound)) if inbound.slot >= 0 else None

    def _forget(self, inbound: Inbound, outcome: str, reason: str) -> None:
        self._clear_timer(inbound)
        inbound.state, inbound.outcome, inbound.reason = State.ENDED, outcome, reason
        inbound.changed.set()
        self._open.pop(inbound.handoff, None)
        self._ended[inbound.handoff] = inbound
        if len(self._ended) > self._config.remember:
            self._ended.popitem(last=False)
        self._counts[outcome] += 1

    async def _drain(self, inbound: Inbound) -> None:
        """Free the slot when no writer of it is left, however long that takes."""
        for generation in [g for g, (owner, _) in self._grants.items() if owner is inbound]:
            while not await self._sink.revoke(generation, self._config.drain_s):
                pass
            self._grants.pop(generation, None)
        self._slots.release(inbound.slot, inbound.generation)
        self._give_slots()

    # Plumbing

    def _refuse(self, peer: bytes, refused: Refused) -> None:
        self._counts["refused"] += 1
        self._control.send(peer, refused)

    def _set_timer(self, inbound: Inbound, seconds: float, reason: str) -> None:
        self._clear_timer(inbound)
        loop = asyncio.get_running_loop()
        text = f"{reason} ({seconds:g} s)"
        inbound.timer = loop.call_later(seconds, self._end, inbound, "failed", text)

    def _clear_timer(self, inbound: Inbound) -> None:
        if inbound.timer is not None:
            inbound.timer.cancel()
            inbound.timer = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
