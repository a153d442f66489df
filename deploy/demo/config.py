"""What `speedtier demo` is told."""

from typing import Annotated, Literal

import msgspec

__all__ = ["DemoConfig"]


def _note(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class DemoConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models, and how long the answers are."""

    model: Annotated[Literal["tiny-mla", "tiny-gqa", "both"], _note("Model to show.")] = "both"
    tokens: Annotated[int, msgspec.Meta(ge=2, le=3072), _note("Length of an answer.")] = 64
    rounds: Annotated[int, msgspec.Meta(ge=1), _note("Times that each question is measured.")] = 2
