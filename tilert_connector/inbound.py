"""One handoff as the decode node sees it.

Invariant: states only move forward, EXPECTED (or RESERVING -> RESERVED) -> WAITING -> WRITING -> COMMITTED -> TAKEN ->
ENDED, any of them may go to ENDED, and `changed` is set once, when the handoff is committed or ended.
"""

import asyncio
import enum

from tilert_connector.chain import BLOCK, DIGEST, Prefix
from tilert_connector.protocol import Offer

__all__ = ["Inbound", "State", "Writing"]


class State(enum.Enum):
    """Where a handoff stands."""

    EXPECTED = "not offered by the prefill node yet"
    RESERVING = "waiting for a slot to be kept for it"
    RESERVED = "a slot is kept for it, not offered by the prefill node yet"
    WAITING = "offered, waiting for a free slot"
    WRITING = "being written"
    COMMITTED = "committed"
    TAKEN = "taken for decoding"
    ENDED = "ended"


class Writing:
    """One rank's part: who writes it (`peer`: its ZeroMQ routing id), and how far it is."""

    def __init__(self, peer: bytes, offer: Offer) -> None:
        self.peer = peer
        self.offer = offer
        self.generation = 0
        """0: not admitted yet."""
        self.landed = False
        self.done = False
        self.content = b""
        """What the sink called the slot's content when this rank was admitted."""
        self.start = 0
        """Token from which this rank wrote; the slot held those before."""

    def planes(self) -> set[int]:
        """Indices of the planes that this rank brings."""
        return {index for start, stop in self.offer.planes for index in range(start, stop)}


class Inbound:
    """The state of one handoff; `Receiver` moves it."""

    def __init__(self, handoff: str) -> None:
        self.handoff = handoff
        self.state = State.EXPECTED
        self.tokens = 0
        self.slot = -1
        self.generation = 0
        self.blocks = 0
        self.tail: tuple[int, ...] = ()
        """What the slot held when it was given: so many blocks of this prompt, and then these token ids."""
        self.content = b""
        """What the sink called the slot's content then."""
        self.writings: dict[int, Writing] = {}
        self.changed = asyncio.Event()
        self.moved = asyncio.Event()
        """Set, and replaced, whenever `state` changes before the state is written."""
        self.timer: asyncio.TimerHandle | None = None
        self.offered_at = 0.0
        """time.monotonic() of the first offer."""
        self.landed_bytes = 0
        self.awaited = False
        """Whether somebody here has asked for it."""
        self.outcome = ""
        """Once ended: committed, failed or cancelled."""
        self.reason = ""

    def move(self, state: State) -> None:
        """Go to another state, and wake who waits for that."""
        self.state = state
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    @property
    def held(self) -> int:
        """Tokens of the slot that a writer may build on."""
        return min(self.tokens, self.blocks * BLOCK + len(self.tail))

    def prefix(self) -> Prefix | None:
        """The prompt, whose state may be shared; None if it must not be."""
        offer = next((writing.offer for writing in self.writings.values()), None)
        if offer is None or not offer.chain:
            return None
        return Prefix(chain=offer.chain, first=(len(offer.chain) // DIGEST - 1) * BLOCK, ids=offer.rest)

    def complete(self, planes: int) -> bool:
        """Whether all `planes` planes have landed and each rank has said that it is done."""
        brought: set[int] = set()
        for writing in self.writings.values():
            if not (writing.landed and writing.done):
                return False
            brought |= writing.planes()
        return len(brought) == planes

    def lost(self, content: bytes) -> bool:
        """Whether what a rank brought, or what the slot held for it, is not there any more."""
        needed = {writing.content for writing in self.writings.values()}
        if any(writing.start for writing in self.writings.values()):
            needed.add(self.content)
        return needed != {content}

    def objection(self, offer: Offer, peer: bytes) -> str:
        """Why this offer does not fit the ranks that have offered so far; empty if it does."""
        known = self.writings.get(offer.rank)
        if known is not None and (known.peer != peer or offer.round <= known.offer.round):
            return f"rank {offer.rank} has offered round {known.offer.round} of it already"
        if self.tokens and offer.tokens != self.tokens:
            return f"tokens is {offer.tokens}, another rank or round offered {self.tokens}"
        prefix = self.prefix()
        if self.writings and (prefix.chain if prefix else b"") != offer.chain:
            return "chain is another than the one that another rank or round offered"
        mine = Writing(peer, offer).planes()
        for rank, writing in self.writings.items():
            if rank != offer.rank and writing.planes() & mine:
                return f"rank {rank} brings some of these planes already"
        return ""
