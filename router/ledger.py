"""Every request of this router: those that are open, and the last errors.

Invariant: a request that is opened is closed exactly once, whatever its end; then it is logged and counted.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from router.metrics import Metrics
from router.record import Record

__all__ = ["Failure", "Ledger"]

KEPT = 20
"""Errors that are remembered."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A request that failed for no fault of its client; ``time``: seconds since 1970. Nothing in it was written by a
    client or a server; what was said to whom is in the access log."""

    time: float
    endpoint: str
    traffic_class: str
    node: str
    status: int
    kind: str


class Ledger:
    """Opened and closed around each request."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._open: dict[int, Record] = {}
        self.failures: deque[Failure] = deque(maxlen=KEPT)
        self.tokens = 0
        self._began = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the router began."""
        return time.monotonic() - self._began

    @property
    def open(self) -> list[Record]:
        """Requests that have not ended, the oldest first."""
        return list(self._open.values())

    @property
    def delivered(self) -> int:
        """Tokens that the speed tier has sent to clients since the start."""
        return self.tokens + sum(record.delivered for record in self._open.values())

    async def empty(self, within_s: float) -> None:
        """Wait until no request is open, or so long."""
        deadline = time.monotonic() + within_s
        while self._open and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    @contextmanager
    def request(self, record: Record) -> Iterator[Record]:
        """Hold a request's record while it is served."""
        self._open[id(record)] = record
        try:
            yield record
        finally:
            del self._open[id(record)]
            self.tokens += record.delivered
            record.close()
            self._metrics.count(record)
            if record.kind and (record.status >= 500 or record.status == 200):
                self.failures.append(_failure(record))


def _failure(record: Record) -> Failure:
    return Failure(
        time=time.time(),
        endpoint=record.endpoint,
        traffic_class=record.traffic_class,
        node=record.node,
        status=record.status,
        kind=record.kind,
    )
