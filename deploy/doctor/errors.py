"""How an examination ends that found something."""

from speedtier.errors import UpstreamError

__all__ = ["NotWell", "Unanswered"]


class NotWell(UpstreamError):
    """At least one check failed; the table says which."""


class Unanswered(UpstreamError):
    """A server did not answer, or with an error. `status`: of HTTP, 0 if it did not answer."""

    def __init__(self, message: str, status: int = 0, raw: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.raw = raw
