"""Scheduler side: from what vLLM schedules to what the workers must send in one step.

Invariants: a request that is not claimed leaves no trace here; what is described covers every prompt token
from 0 upwards, whatever was a prefix-cache hit, and never a generated token; blocks are delayed only for a
request whose state a worker may still be reading. Plain dictionary work: it can neither block nor fail.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tilert_connector.claim import Claim

__all__ = ["Chunk", "Finish", "Opening", "Step", "Tracker"]


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed request is scheduled for the first time. refusal: why it cannot be handed off, if so.

    prompt: its token ids, uint32, little-endian; empty if its state must not be shared. salt: of the tenant."""

    request: str
    claim: Claim
    tokens: int
    refusal: str = ""
    prompt: bytes = b""
    salt: str = ""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """After this step the state of prompt tokens [0, available) lies in the request's blocks.

    blocks: block ids to append. restart: the request was resumed; `blocks` replace all earlier ones.
    """

    request: str
    blocks: tuple[int, ...]
    available: int
    restart: bool = False


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """A request has ended. completed: all its prompt was computed and it was not aborted.
    delayed: its blocks stay until a worker reports it."""

    request: str
    completed: bool
    delayed: bool


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that workers must know for one step, in the order in which they must act on it."""

    preempted: tuple[str, ...] = ()
    openings: tuple[Opening, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    finished: tuple[Finish, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.preempted or self.openings or self.chunks or self.finished)


class _Tracked:
    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.tokens = opening.tokens
        self.opened = False
        self.preempted = False
        self.available = 0


class Tracker:
    """The claimed requests of one scheduler."""

    def __init__(self) -> None:
        self._tracked: dict[str, _Tracked] = {}
        self._delayed: set[str] = set()
        self._preempted: list[str] = []
        self._openings: list[Opening] = []
        self._chunks: list[Chunk] = []
        self._finished: list[Finish] = []

    def __contains__(self, request: str) -> bool:
        return request in self._tracked

    def __len__(self) -> int:
        return len(self._tracked)

    @property
    def delaying(self) -> bool:
        """Whether blocks of finished requests wait for a worker's report."""
        return bool(self._delayed)

    def claim(self, opening: Opening) -> None:
        """A claimed request arrived."""
        self._tracked[opening.request] = _Tracked(opening)

    def schedule(self, request: str, computed: int, scheduled: int, blocks: Sequence[int], anew: bool) -> None:
        """The request runs in this step: tokens [computed, computed + scheduled).

        anew: `blocks` are all of its blocks (first scheduled, or resumed), otherwise the new ones.
        """
        tracked = self._tracked.get(request)
        if tracked is None:
            return
        restart = anew and tracked.opened
        if not tracked.opened:
            tracked.opened = True
            self._openings.append(tracked.opening)
        if restart:
            tracked.available = 0
        tracked.preempted = False
        available = min(tracked.tokens, computed + scheduled)
        if tracked.opening.refusal or (tracked.available == tracked.tokens and not restart):
            return
        tracked.available = available
        self._chunks.append(Chunk(request=request, blocks=tuple(blocks), available=available, restart=restart))

    def preempt(self, request: str) -> None:
        """The scheduler took the request's blocks away; they may be overwritten in this step."""
        tracked = self._tracked.get(request)
        if tracked is not None and tracked.opened:
            tracked.preempted = True
            tracked.available = 0
            self._preempted.append(request)

    def finish(self, request: str, completed: bool) -> bool:
        """The request has ended; whether its blocks must stay until a worker reports it.

        completed: it ended by itself, not by an abort or an error.
        """
        tracked = self._tracked.pop(request, None)
        if tracked is None or not tracked.opened:
            return False
        completed = completed and tracked.available == tracked.tokens
        delayed = not tracked.preempted and not tracked.opening.refusal
        self._finished.append(Finish(request=request, completed=completed, delayed=delayed))
        if delayed:
            self._delayed.add(request)
        return delayed

    def released(self, requests: Iterable[str]) -> None:
        """Workers have reported these requests; their blocks are vLLM's again."""
        self._delayed.difference_update(requests)

    def step(self) -> Step:
        """Everything since the last call."""
        step = Step(
            preempted=tuple(self._preempted),
            openings=tuple(self._openings),
            chunks=tuple(self._chunks),
            finished=tuple(self._finished),
        )
        self._preempted, self._openings, self._chunks, self._finished = [], [], [], []
        return step
