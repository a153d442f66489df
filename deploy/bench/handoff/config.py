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
    overlap_prompts: Annotated[
        int,
        Meta(ge=0, description="Prompts whose overlap with prefill is measured on the real stack; 0 leaves it out."),
    ] = 10
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
