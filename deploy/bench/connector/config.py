"""What `speedtier bench connector` measures."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ConnectorBenchConfig"]


class ConnectorBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two vLLM servers of one model, with and without the connector, take the same bursts in turn."""

    model: Annotated[str, Meta(description="tiny-mla or tiny-gqa: steps so short that any cost shows.")] = "tiny-gqa"
    pairs: Annotated[int, Meta(ge=1, description="Bursts to each server, in turn; the median of ratios counts.")] = 40
    requests: Annotated[int, Meta(ge=1, description="Requests of a burst, all at once.")] = 8
    prompt: Annotated[int, Meta(ge=1, description="Tokens of each prompt.")] = 64
    tokens: Annotated[int, Meta(ge=1, description="Tokens of each reply.")] = 128
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
