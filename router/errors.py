"""Errors the router answers with, each an OpenAI error object with its own status.

Invariant (R2): every failure a client can cause or meet is one of these leaves, so that the status says whose
turn it is: 400 the client's, 429 later, 501 and 503 the operator's, 502 and 504 a peer's. Types follow vLLM's
names (vllm/entrypoints/serve/exception_handling/error_response.py) where it has one.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from speedtier.errors import SpeedtierError, UpstreamError

__all__ = [
    "ApiError",
    "BadRequest",
    "BrokenBody",
    "Busy",
    "NotConfigured",
    "NotFound",
    "NotSupported",
    "PassedThrough",
    "PeerBroken",
    "PeerTimeout",
    "TooLarge",
    "TooSlow",
    "Unable",
    "Unauthorized",
    "Unreached",
    "UnreachedInTime",
]


class ApiError(SpeedtierError):
    """An error with a status and an OpenAI error object.

    ``detour``: why the native pool may serve the request instead, where its class lets it: a field's name, ``length``,
    ``wait`` or ``health``; empty when no other pool would do better. ``blame``: whether it speaks against the health of
    the server that gave it.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None, detour: str = "", blame: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.detour = detour
        self.blame = blame

    @property
    def code(self) -> int:
        """The HTTP status of the reply."""
        return self.status

    def body(self) -> bytes:
        """The error object as JSON: ``{"error": {"message", "type", "param", "code"}}``."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})

    def headers(self) -> Mapping[str, str]:
        """Headers that go with the error."""
        return {}


class BadRequest(ApiError):
    """The request cannot be served as it is, by this or any later try."""

    status = 400
    kind = "BadRequestError"


class BrokenBody(BadRequest):
    """The request body is not what its headers say, so where the next request begins is not known."""

    def headers(self) -> Mapping[str, str]:
        """The connection ends with the reply."""
        return {"connection": "close"}


class Unauthorized(ApiError):
    """The request carries no key that is let in."""

    status = 401
    kind = "AuthenticationError"

    def headers(self) -> Mapping[str, str]:
        """How to say who one is (RFC 6750)."""
        return {"www-authenticate": "Bearer"}


class NotFound(ApiError):
    """No such endpoint."""

    status = 404
    kind = "NotFoundError"


class TooSlow(ApiError):
    """The client took too long to send its request."""

    status = 408
    kind = "RequestTimeoutError"


class TooLarge(ApiError):
    """The request body is larger than the router takes."""

    status = 413
    kind = "RequestEntityTooLargeError"


class Busy(ApiError):
    """All decode slots are taken and the queue is full or the wait was too long."""

    status = 429
    kind = "RateLimitError"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def headers(self) -> Mapping[str, str]:
        """``Retry-After`` in whole seconds."""
        return {"retry-after": str(self.retry_after_s)}


class NotSupported(ApiError):
    """The speed tier cannot execute a field and the class has no pool to fall back to."""

    status = 501
    kind = "NotImplementedError"


class Unable(NotSupported):
    """``param`` names what the speed tier cannot execute; the request may still go to the native pool."""

    def __init__(self, field: str) -> None:
        super().__init__(
            f"the speed tier cannot execute `{field}`; leave the field out, or send the request in a native class, or "
            "in one that falls back",
            param=field,
            detour=field,
        )
        self.field = field


class NotConfigured(ApiError):
    """The deployment lacks a part that this request needs."""

    status = 503
    kind = "ServiceUnavailableError"


class PeerBroken(ApiError, UpstreamError):
    """A server behind the router refused, failed or spoke nonsense."""

    status = 502
    kind = "BadGatewayError"


class PeerTimeout(ApiError, UpstreamError):
    """A server behind the router did not answer within the phase's timeout."""

    status = 504
    kind = "GatewayTimeoutError"


class Unreached(PeerBroken):
    """A server was not reached; nothing of the request has been sent, so another may be asked."""


class UnreachedInTime(Unreached):
    """No connection to a server came about in time."""

    status = 504
    kind = "GatewayTimeoutError"


class PassedThrough(ApiError):
    """A peer's own 4xx, handed to the client byte for byte."""

    def __init__(self, status: int, raw: bytes) -> None:
        super().__init__(f"the server answered {status}: {raw[:500].decode(errors='replace')}")
        self._status = status
        self._raw = raw

    @property
    def code(self) -> int:
        """The peer's status."""
        return self._status

    def body(self) -> bytes:
        """The peer's body."""
        return self._raw
