"""The handoff's leaves of the error tree.

Invariant: whoever waits for a handoff gets exactly one of these or the committed state.
"""

from speedtier.errors import ConfigError, TransferError

__all__ = [
    "NO_SLOT",
    "ClaimError",
    "HandoffBusy",
    "HandoffFailed",
    "HandoffTimeout",
    "LayoutError",
    "MessageError",
    "TicketError",
    "WireError",
]


NO_SLOT = "no slot was free in time"
"""How the reason of a `HandoffBusy` begins."""


class LayoutError(ConfigError):
    """A model's attention state cannot be described, or is not laid out as we read it."""


class ClaimError(TransferError):
    """A request asks for a handoff that cannot be started as it is written."""


class MessageError(TransferError):
    """Bytes from a peer are not one of our control messages, or exceed its limits."""


class TicketError(TransferError):
    """A claim or an offer shows no ticket that allows it."""


class WireError(TransferError):
    """The data plane failed: connection lost, frame refused, bytes damaged."""


class HandoffTimeout(TransferError):
    """The state was not committed within the time that the caller gave."""


class HandoffFailed(TransferError):
    """A handoff ended without a commit. `reason` says why, in words for an operator."""

    def __init__(self, handoff: str, reason: str) -> None:
        super().__init__(f"handoff {handoff!r} failed: {reason}")
        self.handoff = handoff
        self.reason = reason


class HandoffBusy(HandoffFailed):
    """No slot became free in time: nothing is wrong, others were first."""
