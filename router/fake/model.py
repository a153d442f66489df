"""A model for fakes: the next token is a function of all tokens before it.

Invariant: whoever goes on from the same tokens says the same, so a reply that was put together from several servers can
be told from a right one.
"""

import zlib
from array import array
from collections.abc import Sequence

__all__ = ["reply_of", "step"]

FIRST, COUNT = 10, 300
"""Ids that it says: no special ones of the tests' tokenizer."""


def step(ids: Sequence[int]) -> int:
    """The token after ``ids``."""
    return FIRST + zlib.crc32(array("q", ids).tobytes()) % COUNT


def reply_of(prompt: Sequence[int], tokens: int) -> list[int]:
    """``tokens`` tokens after ``prompt``."""
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(step(ids))
    return ids[len(prompt) :]
