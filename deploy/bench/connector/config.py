"""What `speedtier bench connector` measures."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ConnectorBenchConfig"]


class ConnectorBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM servers of one model with our connector, with one that does nothing, and with none take the same bursts."""

    model: Annotated[
        str,
        Meta(
            description="qwen3-0.6b-random (bfloat16, random), or tiny-mla or tiny-gqa, whose steps are so short that "
            "what vLLM itself does for any connector shows."
        ),
    ] = "qwen3-0.6b-random"
    rounds: Annotated[int, Meta(ge=1, description="Bursts to each server, in turn; the median of ratios counts.")] = 20
    requests: Annotated[int, Meta(ge=1, description="Requests of a burst, all at once.")] = 4
    prompt: Annotated[int, Meta(ge=1, description="Tokens of each prompt.")] = 16
    tokens: Annotated[int, Meta(ge=1, description="Tokens of each reply.")] = 32
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
