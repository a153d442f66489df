"""What a decode node says of its handoffs: one log line for each, and how long commits took.

Invariant: nothing here changes a handoff.
"""

import bisect
import logging
import time
from collections.abc import Sequence
from typing import Any

from tilert_connector.inbound import Inbound
from tilert_connector.logs import printable

__all__ = ["Account", "Durations"]

logger = logging.getLogger(__name__)
BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Durations:
    """A histogram as plain data. bounds: upper ends of its buckets in seconds, ascending."""

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect.bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def plain(self) -> dict[str, Any]:
        """buckets: [upper end, how many were at most that] in order, the last "+Inf"; sum: of seconds."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append([bound, total])
        return {"buckets": buckets, "sum": self._sum}


class Account:
    """One receiver's. transport: its name, as it is known once it listens."""

    def __init__(self) -> None:
        self.transport = "-"
        self.commits = Durations()

    def committed(self, inbound: Inbound) -> None:
        """All of it is there."""
        self.commits.add(time.monotonic() - inbound.offered_at)
        self._log(logging.INFO, inbound, "committed")

    def ended(self, inbound: Inbound) -> None:
        """It ended without a commit, or its committed state was not taken."""
        level = logging.WARNING if inbound.outcome == "failed" else logging.INFO
        if not (inbound.offered_at or inbound.awaited):  # of what nobody offered or asked for, any peer can say much
            level = logging.DEBUG
        self._log(level, inbound, inbound.outcome)

    def _log(self, level: int, inbound: Inbound, end: str) -> None:
        now = time.monotonic()
        held = min((writing.start for writing in inbound.writings.values()), default=0)
        logger.log(
            level,
            "handoff=%s end=%s tokens=%d held=%d bytes=%d transport=%s slot=%d total_ms=%.1f%s",
            printable(inbound.handoff),
            end,
            inbound.tokens,
            held,
            inbound.landed_bytes,
            self.transport,
            inbound.slot,
            (now - (inbound.offered_at or now)) * 1e3,
            f" reason={printable(inbound.reason)}" if inbound.reason else "",
        )
