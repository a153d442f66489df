"""What `speedtier bench handoff` measures."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["HandoffBenchConfig"]


class HandoffBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates of the data plane between two processes of this machine, checksums on, in interleaved rounds."""

    rounds: Annotated[int, Meta(ge=1, description="Interleaved rounds; medians are reported.")] = 15
    transports: Annotated[str, Meta(description="Comma-separated; what is not installed is left out and named.")] = (
        "shm,tcp,nixl,mooncake"
    )
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
