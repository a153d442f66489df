"""What is told of one handoff on the prefill node: how many bytes left when, how long it took, how it ended.

Invariant: counting takes a few additions per frame and reads the clock three times per handoff; a record is made once,
when the handoff ends.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec

from tilert_connector.logs import printable

__all__ = ["Course", "Record", "tell"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a handoff that has ended.

    end: committed, failed or cancelled. held: leading tokens that the decode node had already. sent: bytes that it
    confirmed. early: those of them that it had confirmed when the prompt's last state was computed. transport: empty if
    it came to none. whole_s: from the request's first step. after_s: from the end of its prefill; -1 if it had none.
    """

    handoff: str
    request: str
    end: str
    reason: str
    tokens: int
    held: int
    sent: int
    early: int
    transport: str
    whole_s: float
    after_s: float


class Course:
    """A handoff under way. Calls come with the handoff's gate held."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._opened = clock()
        self._computed = 0.0
        self._sizes: deque[int] = deque()
        self._confirmed = 0
        self.transport = ""
        self.sent = 0
        self.early = 0

    def begin(self, transport: str) -> None:
        """A round begins to be written; what an earlier one sent is void."""
        self.transport = transport
        self._sizes.clear()
        self._confirmed = self.sent = self.early = 0

    def posted(self, size: int) -> None:
        """A frame of `size` bytes was given to the writer."""
        self._sizes.append(size)

    def confirmed(self, frames: int) -> None:
        """The decode node has confirmed so many frames of this round."""
        while self._confirmed < frames and self._sizes:
            self.sent += self._sizes.popleft()
            self._confirmed += 1

    def computed(self) -> None:
        """The state of the whole prompt is there."""
        self._computed = self._clock()
        self.early = self.sent

    def revoked(self) -> None:
        """It is not there any more."""
        self._computed = 0.0

    def ended(self, handoff: str, request: str, end: str, reason: str, tokens: int, held: int) -> Record:
        """The record."""
        now = self._clock()
        # Layers leave as they are computed: the commit may come before the step that computes the last one is over.
        before = 0.0 if end == "committed" else -1.0
        return Record(
            handoff=handoff,
            request=request,
            end=end,
            reason=reason,
            tokens=tokens,
            held=held,
            sent=self.sent,
            early=self.early if self._computed else self.sent,
            transport=self.transport,
            whole_s=now - self._opened,
            after_s=now - self._computed if self._computed else before,
        )


def tell(logger: logging.Logger, record: Record) -> None:
    """The one log line of a handoff on this side."""
    share = f"{record.early / record.sent:.0%}" if record.sent else "-"
    logger.log(
        logging.WARNING if record.end == "failed" else logging.INFO,
        "handoff=%s request=%s end=%s tokens=%d held=%d bytes=%d early=%s transport=%s total_ms=%.1f "
        "after_prefill_ms=%s%s",
        printable(record.handoff),
        printable(record.request),
        record.end,
        record.tokens,
        record.held,
        record.sent,
        share,
        record.transport or "-",
        record.whole_s * 1e3,
        f"{record.after_s * 1e3:.1f}" if record.after_s >= 0 else "-",
        f" reason={printable(record.reason)}" if record.reason else "",
    )
