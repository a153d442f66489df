"""What `speedtier bench router` measures."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["RouterBenchConfig"]

Positive = Annotated[int, Meta(ge=1)]


class RouterBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The router, the stubs and the clients are processes of their own on one machine; rounds are interleaved."""

    rounds: Annotated[int, Meta(ge=1, description="Rounds; medians are reported.")] = 5
    streams: Annotated[tuple[Positive, ...], Meta(description="Streams at a time.")] = (1, 8, 64)
    rates: Annotated[tuple[Positive, ...], Meta(description="Tokens a second of each stream.")] = (100, 500, 2000)
    seconds: Annotated[float, Meta(gt=0, le=60, description="How long each measurement of streams takes.")] = 1.0
    requests: Annotated[int, Meta(ge=10, description="Pairs of requests for the time to the first token.")] = 200
    prompt: Annotated[int, Meta(ge=1, le=100_000, description="Tokens of the prompt.")] = 1000
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
