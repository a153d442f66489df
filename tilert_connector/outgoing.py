"""One handoff as the prefill node sees it: shared by the engine's thread and one lane's thread.

Invariants: source memory is touched only with `gate` held and only in the round that the blocks belong
to, so that after `revoke` returned the blocks may be overwritten; `end` counts once.
"""

import enum
import threading
from collections import deque
from collections.abc import Sequence

from tilert_connector.claim import Claim
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
    """tokens: of the prompt. deadline: time.monotonic() after which it has failed."""

    def __init__(self, request: str, claim: Claim, tokens: int, deadline: float) -> None:
        self.request = request
        self.claim = claim
        self.tokens = tokens
        self.deadline = deadline
        self.gate = threading.Lock()
        # The engine's thread writes these, with the gate held.
        self.round = 0
        self.available = 0
        self.blocks: list[int] = []
        self.aborted = ""
        # The lane's thread alone uses these.
        self.phase = Phase.WAITING
        self.phase_deadline = deadline
        self.offered_round = -1
        self.generation = 0
        self.writer: Writer | None = None
        self.posted = 0
        self.queued = 0
        self.frames: deque[Frame] = deque()
        # Set once, by `end`.
        self.state = ""
        self.reason = ""

    def extend(self, blocks: Sequence[int], available: int, restart: bool) -> None:
        """The engine's thread: state of prompt tokens [0, available) is there now."""
        with self.gate:
            if restart and self.blocks:  # resumed, and nobody said that it had been preempted
                self.round += 1
                self.blocks = []
            self.blocks.extend(blocks)
            self.available = available

    def revoke(self) -> None:
        """The engine's thread: the blocks are about to be overwritten. Waits for at most one call that
        does not block; what the decode node has is void, a new round sends everything again."""
        with self.gate:
            self.round += 1
            self.available = 0
            self.blocks = []

    def end(self, state: str, reason: str = "") -> bool:
        """Whoever comes first ends it: committed, failed or cancelled. The source is not read after this."""
        with self.gate:
            if self.state:
                return False
            if self.writer is not None:
                self.writer.close()
            self.frames.clear()
            self.phase = Phase.ENDED
            self.reason, self.state = reason, state
            return True
