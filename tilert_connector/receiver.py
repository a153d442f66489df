"""The decode node's end of the handoff: two ports, some slots, and a way to wait for committed state.

Invariants: no byte lands without an acceptance that names handoff, rank and generation, and none is given
to a prefill node whose fingerprint differs; what `committed` returns is the whole state of the prompt, and
nothing writes to it any more.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from speedtier.errors import ConfigError
from tilert_connector.admission import UNOFFERED, Admission
from tilert_connector.authority import Authority
from tilert_connector.control import ControlSocket
from tilert_connector.curve import read_server
from tilert_connector.errors import NO_SLOT, HandoffBusy, HandoffFailed, HandoffTimeout
from tilert_connector.inbound import State
from tilert_connector.layout.fingerprint import Fingerprint, difference
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.protocol import Done, FromPrefill, Hello, Offer, Refused, Welcome, Withdraw
from tilert_connector.receiver_config import ReceiverConfig
from tilert_connector.slots import Slots
from tilert_connector.ticket import read_keys
from tilert_connector.transport.base import Sink
from tilert_connector.transport.tcp_sink import TcpSink

__all__ = ["Held", "Receiver", "ReceiverConfig"]


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
        self._fingerprint = fingerprint
        self._capacity = capacity
        self._slots = Slots(len(slots))
        self._sink = sink or TcpSink(layout, slots, capacity, config.host, config.data_port)
        curve = read_server(config.curve_key_file, config.curve_clients)
        self._control = ControlSocket(config.host, config.ctrl_port, self._on_message, curve)
        self.instance = secrets.token_hex(8)
        """What this receiver calls itself; tickets name it."""
        keep_s = config.slot_wait_s + config.handoff_s
        authority = Authority(read_keys(config.ticket_key_file), self.instance, keep_s)
        self._admission = Admission(
            config, len(layout.planes), capacity, self._slots, self._sink, self._control.send, authority
        )
        self._greeted: OrderedDict[bytes, str] = OrderedDict()
        self._refused: Counter[str] = Counter()

    @property
    def ctrl_port(self) -> int:
        """The real control port, after `start`."""
        return self._control.port

    @property
    def data_port(self) -> int:
        """The real data port, after `start`."""
        return self._sink.describe().port

    async def start(self) -> None:
        """Bind both ports. Raises ConfigError if one cannot be had."""
        await self._sink.start()
        self._admission.account.transport = self._sink.describe().transport
        try:
            self._control.start()
        except ConfigError:
            await self._sink.close()
            raise

    async def close(self) -> None:
        """End every handoff, stop every writer, release both ports."""
        await self._admission.close()
        await self._sink.close()
        await self._control.close()

    async def committed(self, handoff: str, timeout_s: float) -> Held:
        """Wait until the whole state of this handoff lies in a slot; the caller then owns the slot.

        Waits also for a handoff that was not offered yet. Raises HandoffTimeout, HandoffFailed. A caller that
        gives up must `cancel`.
        """
        inbound = self._admission.wanted(handoff)
        try:
            async with asyncio.timeout(timeout_s):
                await inbound.changed.wait()
        except TimeoutError:
            raise HandoffTimeout(
                f"handoff {handoff!r} was not committed within {timeout_s:g} s: {inbound.state.value}"
            ) from None
        # No await from here on: between the wait and the claim nothing else may run.
        if self._admission.take(inbound):
            generation = inbound.generation
            return Held(handoff=handoff, slot=inbound.slot, generation=generation, tokens=inbound.tokens)
        reason = inbound.reason or f"it is {inbound.outcome or inbound.state.value} already"
        raise (HandoffBusy if reason.startswith(NO_SLOT) else HandoffFailed)(handoff, reason)

    async def reserve(self, handoff: str, wait_s: float) -> None:
        """Keep a slot for a handoff that is not offered yet, in turn with others. The caller must `cancel` it if it
        comes to nothing. Raises HandoffBusy when none was free within `wait_s` seconds."""
        inbound = self._admission.reserve(handoff, wait_s)
        if inbound is None:
            raise HandoffBusy(handoff, f"{NO_SLOT}: too many handoffs are open, or this one is known")
        while inbound.state is State.RESERVING:
            await inbound.moved.wait()
        if inbound.state is State.ENDED:
            raise HandoffBusy(handoff, inbound.reason)

    async def offered(self, handoff: str) -> None:
        """Wait until a reserved handoff is offered or has ended."""
        inbound = self._admission.open.get(handoff)
        while inbound is not None and inbound.state in UNOFFERED:
            await inbound.moved.wait()

    def release(self, held: Held, generated: Sequence[int] = ()) -> None:
        """The slot is free again. Repeated and late calls do nothing.

        generated: ids of the tokens behind the prompt whose state the slot holds too; the next prompt that goes on
        from there need not be sent whole.
        """
        self._admission.release(held.handoff, held.generation, generated)

    async def cancel(self, handoff: str, reason: str) -> bool:
        """End a handoff that nobody has taken; one that was never offered is refused when it comes.

        Returns after its writers have stopped, within `drain_s`; a writer that does not stop keeps its slot
        out of use. False: it had ended or been taken before.
        """
        inbound = self._admission.find(handoff)
        if inbound.state in (State.TAKEN, State.ENDED):
            return False
        task = self._admission.end(inbound, "cancelled", reason)
        if task is not None:
            await asyncio.wait([task], timeout=self._config.drain_s)
        return True

    def status(self) -> dict[str, Any]:
        """Plain data: slots and their generations, open handoffs by state, ended ones by end, bytes."""
        counts = self._admission.counts
        return {
            "slots": self._slots.total,
            "slots_held": {str(slot): held for slot, held in self._slots.holders().items()},
            "resident": {str(slot): tokens for slot, tokens in self._slots.resident().items()},
            "held_tokens": counts["held_tokens"],
            "open": dict(Counter(one.state.name.lower() for one in self._admission.open.values())),
            "ended": {end: counts[end] for end in ("committed", "failed", "cancelled")},
            "landed_bytes": counts["landed_bytes"],
            "resident_hits": counts["resident_hits"],
            "commit_seconds": self._admission.account.commits.plain(),
            "quarantined": self._quarantined(),
            "slow_drains": counts["slow_drains"],
            "messages": {
                "refused": self._refused.total(),
                "refused_by_code": dict(self._refused),
                "malformed": self._control.malformed,
                "ignored": counts["ignored"],
            },
            "prefill_instances": sorted(set(self._greeted.values())),
        }

    def take(self, parts: Sequence[bytes]) -> None:
        """Act on one message of the control plane: the peer's routing id and its frames. The control socket's own
        messages go the same way."""
        self._control.take(parts)

    def _quarantined(self) -> int:
        """Slots whose handoff has ended while a writer of it is not known to have stopped."""
        live = {one.generation for one in self._admission.open.values()}
        return sum(generation not in live for generation in self._slots.holders().values())

    def _on_message(self, peer: bytes, message: FromPrefill) -> None:
        match message:
            case Hello():
                self._on_hello(peer, message)
            case Offer():
                self._on_offer(peer, message)
            case Done():
                self._admission.done(peer, message)
            case Withdraw():
                self._admission.withdraw(peer, message)

    def _on_hello(self, peer: bytes, hello: Hello) -> None:
        found = difference(self._fingerprint, hello.fingerprint)
        if found is not None:
            field, ours, theirs = found
            reason = f"fingerprint differs in {field}: decode node has {ours!r}, prefill node has {theirs!r}"
            self._refuse(peer, Refused(code="fingerprint", reason=reason[:2048]))
            return
        self._greeted[peer] = hello.instance
        if len(self._greeted) > self._config.remember:
            self._greeted.popitem(last=False)
        endpoint = self._sink.describe()
        welcome = Welcome(
            instance=self.instance,
            transport=endpoint.transport,
            data_port=endpoint.port,
            capacity=self._capacity,
        )
        self._control.send(peer, welcome)

    def _on_offer(self, peer: bytes, offer: Offer) -> None:
        if peer in self._greeted:
            self._greeted.move_to_end(peer)  # who is busy is not forgotten for those who only greet
            objection = self._admission.offer(peer, offer)
        else:
            objection = "hello", "no hello of yours is known here: the decode node may have restarted"
        if objection is not None:
            code, reason = objection
            self._refuse(
                peer,
                Refused(
                    code=code,
                    reason=reason[:2048],
                    handoff=offer.handoff,
                    rank=offer.rank,
                    round=offer.round,
                ),
            )

    def _refuse(self, peer: bytes, refused: Refused) -> None:
        self._refused[refused.code] += 1
        self._control.send(peer, refused)
