"""Tells people what the launcher waits for.

Invariant: on a terminal one line that changes in place; elsewhere a line at most every few seconds, so that
a log stays readable.
"""

import time
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.status import Status

__all__ = ["Progress"]

_EVERY_S = 10.0


class Progress:
    """Shows the names that are still awaited and how long it has taken. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._printed = time.monotonic()
        self._status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def waiting(self, names: Iterable[str]) -> None:
        """Call as often as you like."""
        now = time.monotonic()
        text = f"waiting for {', '.join(names)} ({now - self._started:.0f} s)"
        if self._status is not None:
            self._status.update(text)
        elif now - self._printed >= _EVERY_S:
            self._printed = now
            self._console.print(text, highlight=False)

    def done(self, name: str) -> None:
        """One of them serves."""
        taken = time.monotonic() - self._started
        self._console.print(f"{name} is ready after {taken:.0f} s", highlight=False)
