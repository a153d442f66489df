"""The decode node's ledger of handoffs: who may write where, and how each one ends.

Invariants: nothing is granted without a slot, a new generation and a new key; a slot goes to the next
handoff only after every writer that was granted it has been stopped; every state has a timer.
"""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from tilert_connector.account import Account
from tilert_connector.authority import Authority
from tilert_connector.chain import BLOCK, DIGEST, Prefix
from tilert_connector.errors import NO_SLOT
from tilert_connector.inbound import Inbound, State, Writing
from tilert_connector.protocol import Accepted, Done, Ended, FromDecode, Offer, Withdraw
from tilert_connector.receiver_config import ReceiverConfig
from tilert_connector.slots import Slots
from tilert_connector.transport.base import Grant, Report, Sink

__all__ = ["UNOFFERED", "Admission"]

Objection = tuple[Literal["hello", "ended", "busy", "malformed", "conflict", "ticket"], str]
SAY_WHY_S = 0.5
"""After a lost data connection: time for the sender's own reason to arrive on the control plane."""
UNOFFERED = (State.EXPECTED, State.RESERVING, State.RESERVED)
UNDECIDED = (*UNOFFERED, State.WAITING, State.WRITING)


class Admission:
    """planes: of the layout. capacity: tokens of a slot. tell: sends a message to a peer."""

    def __init__(
        self,
        config: ReceiverConfig,
        planes: int,
        capacity: int,
        slots: Slots,
        sink: Sink,
        tell: Callable[[bytes, FromDecode], None],
        authority: Authority,
    ) -> None:
        self._config = config
        self._planes = planes
        self._capacity = capacity
        self._slots = slots
        self._sink = sink
        self._tell = tell
        self._authority = authority
        self._ended: OrderedDict[str, Inbound] = OrderedDict()
        self._queue: deque[Inbound] = deque()
        self._grants: dict[int, tuple[Inbound, Writing]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.open: dict[str, Inbound] = {}
        self.counts: Counter[str] = Counter()
        self.account = Account()

    def find(self, handoff: str) -> Inbound:
        """The handoff's record; a new one if nobody spoke of it before."""
        inbound = self._ended.get(handoff) or self.open.get(handoff)
        if inbound is None:
            inbound = self.open[handoff] = Inbound(handoff)
            self._expect(inbound)
        return inbound

    def wanted(self, handoff: str) -> Inbound:
        """The handoff's record, whose state somebody waits for from now on."""
        inbound = self.find(handoff)
        if inbound.state is State.RESERVED and not inbound.awaited:
            self._expect(inbound)
        inbound.awaited = True
        return inbound

    # What prefill nodes say

    def offer(self, peer: bytes, offer: Offer) -> Objection | None:
        """Queue or start over; the answer goes out when there is a slot. An objection changes nothing."""
        objection = self._objection(peer, offer)
        if objection is not None:
            return objection
        inbound = self.find(offer.handoff)
        writing = inbound.writings[offer.rank] = Writing(peer, offer)
        if offer.tokens > self._capacity:
            reason = f"prompt of {offer.tokens} tokens, this decode node holds at most {self._capacity}"
            self.end(inbound, "failed", reason)
            return None
        inbound.tokens = offer.tokens
        if inbound.state in UNOFFERED:
            if inbound.state is State.RESERVED:
                self._queue.appendleft(inbound)  # a slot is free, for this one alone
            elif inbound.state is State.EXPECTED:
                self._queue.append(inbound)
            inbound.move(State.WAITING)
            inbound.offered_at = time.monotonic()
            self._set_timer(inbound, self._config.slot_wait_s, NO_SLOT)
            self._give_slots()
        elif inbound.state is State.WRITING:
            self._spawn(self._admit(inbound, writing))
        return None

    def done(self, peer: bytes, done: Done) -> None:
        """A rank has written everything; of an old generation, or from another peer, it means nothing."""
        inbound, writing = self._grants.get(done.generation, (None, None))
        if inbound is None or writing is None or inbound.handoff != done.handoff or writing.peer != peer:
            self.counts["ignored"] += 1
            return
        if done.start > inbound.held:
            self.end(inbound, "failed", f"rank {done.rank} began at token {done.start}, {inbound.held} were held")
            return
        writing.done, writing.start = True, done.start
        if done.start == inbound.tokens and not writing.landed:
            self._spawn(self._nothing_missing(inbound, writing))
        self._commit_if_complete(inbound)

    def withdraw(self, peer: bytes, withdraw: Withdraw) -> None:
        """A sender gives up; that of a handoff that is another peer's means nothing."""
        inbound = self.find(withdraw.handoff)
        owners = {writing.peer for writing in inbound.writings.values()}
        if inbound.state not in UNDECIDED or (owners and peer not in owners):
            self.counts["ignored"] += 1
            return
        self.end(inbound, "failed", f"withdrawn by the prefill node: {withdraw.reason}")

    # What the decode node does

    def reserve(self, handoff: str, wait_s: float) -> Inbound | None:
        """Queue for a slot before the prefill node offers; None if too many handoffs are open or it is known already.

        It gets its turn among offers and reservations, first come first served, or ends after `wait_s`.
        """
        if handoff in self.open or handoff in self._ended or len(self.open) >= self._config.max_handoffs:
            return None
        inbound = self.open[handoff] = Inbound(handoff)
        inbound.move(State.RESERVING)
        self._queue.append(inbound)
        self._set_timer(inbound, wait_s, NO_SLOT)
        self._give_slots()
        return inbound

    def take(self, inbound: Inbound) -> bool:
        """Whether the committed state is the caller's from now on, until `release`."""
        if inbound.state is not State.COMMITTED:
            return False
        self._clear_timer(inbound)
        inbound.state = State.TAKEN
        return True

    def release(self, handoff: str, generation: int, generated: Sequence[int]) -> None:
        """The taker is finished with the slot, which holds the state of these tokens behind the prompt; late and
        repeated calls do nothing."""
        inbound = self.open.get(handoff)
        if inbound is not None and inbound.state is State.TAKEN and inbound.generation == generation:
            self._close_record(inbound, "committed", "")
            self._slots.release(inbound.slot, generation, self._prefix(inbound, generated))
            self._give_slots()

    def end(self, inbound: Inbound, outcome: Literal["failed", "cancelled"], reason: str) -> asyncio.Task[None] | None:
        """The one end without a commit. The task, if any, frees the slot once all writers stopped."""
        told = inbound.state in (State.COMMITTED, State.TAKEN)
        prefix = self._prefix(inbound) if told else None
        self._close_record(inbound, outcome, reason)
        self.account.ended(inbound)
        if not told:
            for writing in inbound.writings.values():
                ended = Ended(handoff=inbound.handoff, state=outcome, reason=reason[:2048])
                self._tell(writing.peer, ended)
        if inbound in self._queue:
            self._queue.remove(inbound)
        if inbound.slot >= 0:
            return self._spawn(self._drain(inbound, prefix))
        self._give_slots()  # one may have been kept for it
        return None

    async def close(self) -> None:
        """End what is open; the sink must have stopped every writer after this."""
        for inbound in list(self.open.values()):
            self.end(inbound, "failed", "the decode node is shutting down")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Inside

    def _objection(self, peer: bytes, offer: Offer) -> Objection | None:
        inbound = self._ended.get(offer.handoff) or self.open.get(offer.handoff)
        if inbound is None:
            if len(self.open) >= self._config.max_handoffs:
                return "busy", f"{self._config.max_handoffs} handoffs are open already"
            inbound = Inbound(offer.handoff)
        if inbound.state not in UNDECIDED:
            state = inbound.outcome or inbound.state.value
            return "ended", f"this handoff is {state} already {inbound.reason}".rstrip()
        previous = 0
        for start, stop in offer.planes:
            if start < previous or stop <= start or stop > self._planes:
                return "malformed", f"planes {offer.planes} are not ascending ranges of {self._planes}"
            previous = stop
        blocks, odd = divmod(len(offer.chain), DIGEST)
        if offer.chain and (odd or (blocks - 1) * BLOCK + len(offer.rest) != offer.tokens):
            return "malformed", f"chain and rest describe another prompt than one of {offer.tokens} tokens"
        objection = inbound.objection(offer, peer)
        if objection:
            return "conflict", objection
        objection = self._authority.objection(offer, bool(inbound.writings))
        return ("ticket", objection) if objection else None

    def _kept(self) -> int:
        """Slots that reserved handoffs will take."""
        return sum(one.state is State.RESERVED for one in self.open.values())

    def _give_slots(self) -> None:
        """Admit as many waiting handoffs as slots are free and kept for nobody, first come first served."""
        while self._queue and self._slots.free > self._kept():
            if self._queue[0].state is State.RESERVING:
                reserved = self._queue.popleft()
                reserved.move(State.RESERVED)
                self._set_timer(reserved, self._config.lease_s, "a slot was kept for it and it was not offered")
                continue
            prefix = self._prefix(self._queue[0])
            taken = self._slots.take(prefix.chain if prefix is not None else b"")
            if taken is None:
                return
            inbound = self._queue.popleft()
            inbound.slot, inbound.generation, inbound.blocks, inbound.tail = taken
            inbound.content = self._sink.content(inbound.slot)
            if self._sink.late:
                inbound.tail = ()
            inbound.move(State.WRITING)
            self._set_timer(inbound, self._config.handoff_s, "it was not written in time")
            for writing in inbound.writings.values():
                self._spawn(self._admit(inbound, writing))

    async def _admit(self, inbound: Inbound, writing: Writing) -> None:
        """Let a rank write, once each of its earlier rounds has been stopped."""
        offer = writing.offer
        for generation in self._generations(inbound, offer.rank):
            await self._stop(generation)
        if inbound.state is not State.WRITING or inbound.writings.get(offer.rank) is not writing:
            return
        writing.generation, writing.content = self._slots.generation(), self._sink.content(inbound.slot)
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
            held=inbound.held,
        )
        self._sink.admit(grant, self._on_report)
        accepted = Accepted(
            handoff=offer.handoff,
            rank=offer.rank,
            round=offer.round,
            generation=writing.generation,
            key=key,
            held=inbound.blocks * BLOCK,
            tail=inbound.tail,
        )
        self._tell(writing.peer, accepted)

    def _on_report(self, report: Report) -> None:
        inbound, writing = self._grants.get(report.generation, (None, None))
        self.counts["landed_bytes"] += report.landed_bytes
        if inbound is not None:
            inbound.landed_bytes += report.landed_bytes
        if inbound is None or writing is None or inbound.writings.get(writing.offer.rank) is not writing:
            return  # of a round that was started over
        if report.landed:
            writing.landed = True
            self._commit_if_complete(inbound)
        elif inbound.state is State.WRITING:
            self._clear_timer(inbound)
            loop = asyncio.get_running_loop()
            inbound.timer = loop.call_later(SAY_WHY_S, self.end, inbound, "failed", report.reason)

    def _commit_if_complete(self, inbound: Inbound) -> None:
        if inbound.state is not State.WRITING or not inbound.complete(self._planes):
            return
        if inbound.lost(self._sink.content(inbound.slot)):
            self.end(inbound, "failed", "a writer that did not stop cost the slot what others had brought")
            return
        inbound.state = State.COMMITTED
        start = min(writing.start for writing in inbound.writings.values())
        self.counts["held_tokens"] += start
        self.counts["resident_hits"] += start > 0
        self.account.committed(inbound)
        self._set_timer(inbound, self._config.claim_s, "nobody asked for the committed state")
        for writing in inbound.writings.values():
            self._grants.pop(writing.generation, None)
            self._tell(writing.peer, Ended(handoff=inbound.handoff, state="committed"))
        inbound.changed.set()

    def _close_record(self, inbound: Inbound, outcome: str, reason: str) -> None:
        self._clear_timer(inbound)
        inbound.outcome, inbound.reason = outcome, reason
        inbound.move(State.ENDED)
        inbound.changed.set()
        self.open.pop(inbound.handoff, None)
        self._ended[inbound.handoff] = inbound
        if len(self._ended) > self._config.remember:
            self._ended.popitem(last=False)
        self.counts[outcome] += 1

    async def _nothing_missing(self, inbound: Inbound, writing: Writing) -> None:
        """The slot holds all that this rank would bring; once nothing can land, that is as good as landed."""
        await self._stop(writing.generation)
        writing.landed = True
        self._commit_if_complete(inbound)

    def _prefix(self, inbound: Inbound, generated: Sequence[int] = ()) -> Prefix | None:
        """What a slot with this state may be kept for."""
        prefix = inbound.prefix() if self._config.resident else None
        return prefix.after(generated) if prefix and self._config.resident_generated else prefix

    async def _drain(self, inbound: Inbound, prefix: Prefix | None) -> None:
        """Free the slot when no writer of it is left, however long that takes. prefix: of whole state in it."""
        for generation in self._generations(inbound):
            await self._stop(generation)
        self._slots.release(inbound.slot, inbound.generation, prefix)
        self._give_slots()

    def _generations(self, inbound: Inbound, rank: int | None = None) -> list[int]:
        """Granted and not known to be stopped: of this handoff, or of one rank of it."""
        return [
            generation
            for generation, (owner, writing) in self._grants.items()
            if owner is inbound and rank in (None, writing.offer.rank)
        ]

    async def _stop(self, generation: int) -> None:
        while not await self._sink.revoke(generation, self._config.drain_s):
            self.counts["slow_drains"] += 1
        self._grants.pop(generation, None)

    def _expect(self, inbound: Inbound) -> None:
        # A prefill node offers before it computes, so whoever has its first token need not wait long for the offer.
        self._set_timer(inbound, self._config.expect_s, "the prefill node never offered it, its log says why")

    def _set_timer(self, inbound: Inbound, seconds: float, reason: str) -> None:
        self._clear_timer(inbound)
        loop = asyncio.get_running_loop()
        inbound.timer = loop.call_later(seconds, self.end, inbound, "failed", f"{reason} ({seconds:g} s)")

    def _clear_timer(self, inbound: Inbound) -> None:
        if inbound.timer is not None:
            inbound.timer.cancel()
            inbound.timer = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
