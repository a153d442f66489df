"""One handoff as the prefill node sees it: shared by the engine's thread and one lane's thread.

Invariants: source memory is touched only with `gate` held and only in the round that the blocks belong
to, so that after `revoke` returned the blocks may be overwritten; `end` counts once.
"""

import enum
import threading
from collections import deque
from collections.abc import Sequence

import numpy as np

from tilert_connector.chain import Prefix, describe, root
from tilert_connector.course import Course, Record
from tilert_connector.tracker import Opening
from tilert_connector.transport.base import Writer
from tilert_connector.transport.frame import Frame

__all__ = ["Outgoing", "Phase"]


class Phase(enum.Enum):
    """Where the lane is with it."""

    WAITING = "waiting for the decode node's hello"
    OFFERED = "waiting for the decode node's slot"
    WRITING = "being written"
    DONE = "waiting for the decode node's commit"
    ENDED = "ended"


class Outgoing:
    """deadline: time.monotonic() after which it has failed. layers: how many this rank sends of."""

    def __init__(self, opening: Opening, deadline: float, layers: int) -> None:
        self.request = opening.request
        self.claim = opening.claim
        self.tokens = opening.tokens
        self.deadline = deadline
        self.prompt: list[int] = np.frombuffer(opening.prompt, "<u4").tolist()
        """Empty if the state must not be shared."""
        self._salt = opening.salt
        self.gate = threading.Lock()
        # The engine's thread writes these, with the gate held.
        self.round = 0
        self.available = 0
        self.blocks: list[int] = []
        self.saved: set[int] = set()
        """Layers whose part of the last chunk is there, while its step still runs."""
        self.aborted = opening.refusal
        # The lane's thread alone uses these.
        self.phase = Phase.WAITING
        self.phase_deadline = deadline
        self.offered_round = -1
        self.generation = 0
        self.writer: Writer | None = None
        self.posted = 0
        self.start = 0
        """Token from which it is sent; the decode node holds those before."""
        self.queued = [0] * layers
        self.frames: deque[Frame] = deque()
        self.course = Course()
        # Set once, by `end`, the record first.
        self.record: Record | None = None
        self.state = ""
        self.reason = ""

    def prefix(self, model: str) -> Prefix | None:
        """The prompt as the decode node may keep it, for state of this model."""
        return describe(self.prompt, root(model, self._salt)) if self.prompt else None

    def extend(self, blocks: Sequence[int], restart: bool) -> None:
        """The engine's thread, before a step: these are the next blocks, or all if it was resumed."""
        with self.gate:
            if restart and self.blocks:  # and nobody said that it had been preempted
                self._start_over()
            self.blocks.extend(blocks)

    def fill(self, available: int) -> None:
        """The engine's thread, after a step: the state of prompt tokens [0, available) is there now."""
        with self.gate:
            self.available = available
            if available == self.tokens:
                self.course.computed()

    def revoke(self) -> None:
        """The engine's thread: the blocks are about to be overwritten. Waits for at most one call that
        does not block; what the decode node has is void, a new round sends everything again."""
        with self.gate:
            self._start_over()

    def end(self, state: str, reason: str = "") -> bool:
        """Whoever comes first ends it: committed, failed or cancelled. The source is not read after this."""
        with self.gate:
            if self.state:
                return False
            if self.writer is not None:
                self.writer.close()
            self.frames.clear()
            self.phase = Phase.ENDED
            claim, course = self.claim, self.course
            self.record = course.ended(claim.handoff, self.request, state, reason, self.tokens, self.start)
            self.reason, self.state = reason, state
            return True

    def _start_over(self) -> None:
        self.round += 1
        self.available = 0
        self.blocks = []
        self.saved.clear()
        self.course.revoked()
