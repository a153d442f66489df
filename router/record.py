"""What is remembered of one request, for its access log line and the metrics.

Invariant: one line for each request, whatever its end, and no header, prompt or reply text in it.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

__all__ = ["CLIENT_GONE", "Record"]

_ACCESS = logging.getLogger("router.access")
CLIENT_GONE = 499  # nginx's number for a client that did not wait for its reply


@dataclass(slots=True)
class Record:
    """One request. ``phases`` are seconds by name; ``first_token_s`` counts from the request's arrival."""

    endpoint: str
    request_id: str = ""
    traffic_class: str = ""
    served_by: str = ""
    node: str = ""
    fallback: str = ""
    status: int = CLIENT_GONE
    stream: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    first_token_s: float | None = None
    total_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, also when it fails."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - start

    def leave(self, why: str) -> None:
        """The connection to the client broke before the reply was complete."""
        self.status, self.error = CLIENT_GONE, self.error or why

    def token(self) -> None:
        """The first token is on its way to the client."""
        if self.first_token_s is None:
            self.first_token_s = time.monotonic() - self._start

    def close(self) -> None:
        """Take the total time and write the line."""
        self.total_s = time.monotonic() - self._start
        line = {
            "time": time.time(),
            "endpoint": self.endpoint,
            "request_id": self.request_id,
            "class": self.traffic_class,
            "served_by": self.served_by,
            "node": self.node,
            "fallback": self.fallback,
            "status": self.status,
            "stream": self.stream,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "first_token_ms": _ms(self.first_token_s),
            "total_ms": _ms(self.total_s),
            **{f"{name}_ms": _ms(seconds) for name, seconds in self.phases.items()},
        }
        kept = {name: value for name, value in line.items() if value not in (None, "")}
        _ACCESS.info("%s", msgspec.json.encode(kept).decode())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
