"""What the handoff asks of a data plane, on both ends.

Invariants: a byte lands only under a grant; after `Sink.revoke` returned True nothing of that grant can
land any more; what a closed writer still reads from source memory can land only under a grant that never commits.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from tilert_connector.transport.frame import Frame

__all__ = ["Carrier", "Carriers", "Endpoint", "Grant", "Report", "Sink", "Writer"]

Ranges = tuple[tuple[int, int], ...]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sink can be reached: its transport's name, its host (an IP address) and port."""

    transport: str
    host: str
    port: int


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Leave to write tokens [start, tokens) of some planes into one slot; the writer chooses a start up to `held`.

    generation: never used twice for a slot. key: 16 random bytes that the writer must show.
    planes: half-open ranges of plane indices. held: leading tokens whose state lies in the slot already.
    """

    handoff: str
    rank: int
    generation: int
    key: bytes
    slot: int
    tokens: int
    planes: Ranges
    held: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink tells about a grant, on the event loop: all planes landed, or why they will not."""

    generation: int
    landed: bool
    landed_bytes: int
    reason: str = ""


class Sink(Protocol):
    """The decode node's end. All methods are called on one asyncio loop."""

    late: bool
    """Whether bytes may still arrive after their writer was told that they have. Such a writer must not build on state
    of which the slot may hold more than it was told."""

    async def start(self) -> None:
        """Begin to listen. Raises ConfigError if the address cannot be bound."""

    def describe(self) -> Endpoint:
        """Where writers connect; valid after `start`."""

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> None:
        """Let this grant write. `report` is called once, on the loop, unless it is revoked first; after a
        report nothing of this grant can land any more."""

    async def revoke(self, generation: int, timeout_s: float) -> bool:
        """Stop the grant's writer. True: no byte can land any more. False: not confirmed in time; the slot stays out
        of use and the caller asks again."""

    def content(self, slot: int) -> bytes:
        """Names what lies in a slot; another name once a revocation has cost the slot what it held before."""

    async def close(self) -> None:
        """Revoke everything, stop listening, join every thread."""


class Writer(Protocol):
    """The prefill node's end of one grant, driven by one thread that polls; no method blocks."""

    def room(self) -> bool:
        """Whether `write` may be called now."""

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        """Post one frame; `pieces` are its bytes in order and stay referenced until they are sent. Raises WireError
        if the frame cannot be written there; the grant's connection is then of no more use."""

    def progress(self) -> None:
        """Move what can be moved. Raises WireError when the grant's connection is of no more use."""

    def completed(self) -> int:
        """How many frames the sink has confirmed, in the order of `write`."""

    def interest(self) -> tuple[int, bool, bool] | None:
        """(file descriptor, wants to read, wants to write) to poll for; None: call again soon."""

    def close(self) -> None:
        """Post nothing more and end the connection; does not wait. Writes that an engine cannot take back may still
        land, under this grant only, and the sink does not confirm its revocation before they have."""


class Carrier(Protocol):
    """Makes writers; belongs to one lane and is used on its thread alone."""

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> Writer:
        """Begin to connect; does not wait. Raises WireError if that cannot even be tried."""

    def close(self) -> None:
        """End what its writers left and let go of everything; bounded."""


Carriers = Callable[[str], Carrier]
"""Makes a lane's carrier for a transport's name. Raises WireError that names those there are."""
