"""How long each phase of a request may take.

Invariant: no phase waits without a bound.
"""

from typing import Annotated

import msgspec

__all__ = ["Timeouts"]

Seconds = Annotated[float, msgspec.Meta(gt=0)]
HandoffSeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]  # the longest that a decode node waits


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The longest each phase may take, in seconds."""

    receive: Annotated[Seconds, msgspec.Meta(description="Reading the client's request.")] = 60.0
    connect: Annotated[Seconds, msgspec.Meta(description="Connecting to a server, and asking what it can do.")] = 5.0
    render: Annotated[Seconds, msgspec.Meta(description="Rendering the prompt.")] = 30.0
    prefill: Annotated[Seconds, msgspec.Meta(description="From the prefill leg's start to its token.")] = 300.0
    handoff: Annotated[
        HandoffSeconds, msgspec.Meta(description="From the first token to the first one that the decode node adds.")
    ] = 60.0
    stall: Annotated[Seconds, msgspec.Meta(description="Between two tokens of the decode node.")] = 30.0
    cancel: Annotated[
        Seconds,
        msgspec.Meta(description="Letting the decode node end a request before its slot is given away."),
    ] = 1.0
    client: Annotated[Seconds, msgspec.Meta(description="A client that does not read its stream.")] = 60.0
    native: Annotated[Seconds, msgspec.Meta(description="Between two reads of a native server's reply.")] = 600.0
    shutdown: Annotated[Seconds, msgspec.Meta(description="Letting open requests finish at the end.")] = 10.0
