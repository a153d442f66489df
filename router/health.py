"""Whether a server can be reached: a circuit breaker.

Invariant: only failures to reach a server count, never that it was busy. A server that failed is left alone for a time
that doubles with each failure up to a bound; then one request tries it, and the others wait for how that goes.
"""

import time
from collections.abc import Callable

__all__ = ["FIRST_S", "LAST_S", "Health"]

FIRST_S = 0.5
LAST_S = 30.0


class Health:
    """What is known of one server.

    ``failures``: in a row. ``last_error``: what the last one said; it stays when the server is well again.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, first_s: float = FIRST_S, last_s: float = LAST_S
    ) -> None:
        self.failures = 0
        self.last_error = ""
        self._clock = clock
        self._first_s, self._last_s = first_s, last_s
        self._until = 0.0
        self._trying = False

    @property
    def healthy(self) -> bool:
        """Whether the last request reached the server."""
        return self.failures == 0

    @property
    def usable(self) -> bool:
        """Whether a request may go there now: it is healthy, or its pause is over and nobody tries it."""
        return self.healthy or (self._clock() >= self._until and not self._trying)

    @property
    def pause_s(self) -> float:
        """Seconds for which it is still left alone."""
        return max(0.0, self._until - self._clock()) if self.failures else 0.0

    def taken(self) -> None:
        """A request goes there."""
        self._trying = not self.healthy

    def left(self) -> None:
        """A request ended without having shown whether the server is well, such as when its client left."""
        self._trying = False

    def worked(self) -> None:
        """The server answered."""
        self.failures = 0
        self._trying = False

    def failed(self, why: str) -> None:
        """The server could not be reached, or said that what is behind it cannot."""
        self.last_error = why
        self._trying = False
        if self._clock() >= self._until:  # what failed at the same time counts once
            self.failures += 1
            self._until = self._clock() + min(self._first_s * 2.0 ** min(self.failures - 1, 30), self._last_s)
        self.failures = max(1, self.failures)
