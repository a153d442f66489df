"""What is remembered of one request, for its access log line, the metrics and the status page.

Invariant: one line for each request, whatever its end, and no header, key, prompt or reply text in it.
"""

import logging
import re
import time
from dataclasses import dataclass, field

import msgspec

from router.errors import ApiError, PassedThrough

__all__ = ["CLIENT_GONE", "Record", "trace_id"]

_ACCESS = logging.getLogger("router.access")
CLIENT_GONE = 499  # nginx's number for a client that did not wait for its reply
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def trace_id(traceparent: str) -> str:
    """The trace that a ``traceparent`` header names (W3C Trace Context, 3.2); empty for none."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    return found[1] if found and found[1].strip("0") and not traceparent.startswith("ff") else ""


class _Phase:
    """A class and no generator: one is entered for each token."""

    __slots__ = ("_name", "_phases", "_start")

    def __init__(self, phases: dict[str, float], name: str) -> None:
        self._phases, self._name = phases, name

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._phases[self._name] = self._phases.get(self._name, 0.0) + time.monotonic() - self._start


@dataclass(slots=True)
class Record:
    """One request.

    ``owner``: name of its API key. ``source``: what named its class. ``fallback``: why the speed tier did not serve it.
    ``phases``: seconds by name: ``render``, ``queue``, ``prefill``, ``handoff`` (from the first token until the decode
    node has the state), ``first_step`` (from there to its first token), ``decode``. ``first_token_s`` counts from the
    request's arrival. ``delivered``: tokens that have gone to the client. ``retries``, ``repairs``: tries on another
    node before and after the first token.
    """

    endpoint: str
    owner: str = ""
    source: str = ""
    trace: str = ""
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
    kind: str = ""
    retries: int = 0
    repairs: int = 0
    delivered: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    total_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic)

    def phase(self, name: str) -> "_Phase":
        """A context that times a phase, also when it fails; one phase may come in parts."""
        return _Phase(self.phases, name)

    def handed(self, at: float | None) -> None:
        """The first token of the decode node is here, and since ``at`` (``time.monotonic``) it had the state: what has
        been timed as ``handoff`` from there on was its first step."""
        if at is not None:
            step = min(time.monotonic() - at, self.phases.get("handoff", 0.0))
            self.phases["first_step"] = step
            self.phases["handoff"] = self.phases.get("handoff", 0.0) - step

    def leave(self, why: str) -> None:
        """The connection to the client broke before the reply was complete."""
        self.status, self.error = CLIENT_GONE, self.error or why

    def fail(self, error: ApiError) -> None:
        """The request ended in an error, before or after the first byte."""
        # A server's own words may quote the request; the client has them.
        told = f"the server answered {error.code}" if isinstance(error, PassedThrough) else error.message
        self.error, self.kind = told, type(error).__name__

    def token(self) -> None:
        """The first token is on its way to the client."""
        if self.first_token_s is None:
            self.first_token_s = time.monotonic() - self._start

    def tokens(self, count: int) -> None:
        """``count`` tokens more are on their way to the client; for each step."""
        self.last_token_s = time.monotonic() - self._start
        if self.first_token_s is None:
            self.first_token_s = self.last_token_s
        self.delivered += count

    @property
    def age_s(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._start

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second after the first; None while there is no second one."""
        if self.first_token_s is None or self.last_token_s is None or self.delivered < 2:
            return None
        seconds = self.last_token_s - self.first_token_s
        return (self.delivered - 1) / seconds if seconds > 0 else None

    def close(self) -> None:
        """Take the total time and write the line."""
        self.total_s = self.age_s
        line = {
            "time": time.time(),
            "endpoint": self.endpoint,
            "request_id": self.request_id,
            "trace_id": self.trace,
            "key": self.owner,
            "class": self.traffic_class,
            "class_from": self.source,
            "served_by": self.served_by,
            "node": self.node,
            "fallback": self.fallback,
            "status": self.status,
            "stream": self.stream,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "retries": self.retries or None,
            "repairs": self.repairs or None,
            "first_token_ms": _ms(self.first_token_s),
            "total_ms": _ms(self.total_s),
            "tokens_per_s": None if self.tokens_per_s is None else round(self.tokens_per_s, 1),
            **{f"{name}_ms": _ms(seconds) for name, seconds in self.phases.items()},
        }
        kept = {name: value for name, value in line.items() if value not in (None, "")}
        _ACCESS.info("%s", msgspec.json.encode(kept).decode())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
