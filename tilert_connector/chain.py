"""Whose prefix is whose: a chain of digests over a prompt's token ids.

Invariant: equal digests mean equal token ids from the first to the end of that block, for the same model and the same
tenant; without the tenant's salt no chain of that tenant can be made or recognised.
"""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "DIGEST", "extend", "root", "shared"]

BLOCK: Final = 128
"""Tokens per digest: of a prompt that was edited, at most so many are sent again although they were held."""
DIGEST: Final = 16
"""Bytes of a digest."""


def root(model: str, salt: str) -> bytes:
    """What the first block follows. model: names weights and numerics. salt: of the tenant (vLLM's `cache_salt`)."""
    return hashlib.blake2b(f"{len(model)}:{model}{salt}".encode(), digest_size=DIGEST).digest()


def extend(last: bytes, tokens: NDArray[np.uint32]) -> bytes:
    """Digests of the full blocks of `tokens`, which follow the block (or root) whose digest is `last`."""
    digests: list[bytes] = []
    data = np.ascontiguousarray(tokens, "<u4")
    for start in range(0, len(data) - BLOCK + 1, BLOCK):
        block = data[start : start + BLOCK].tobytes()
        last = hashlib.blake2b(block, digest_size=DIGEST, key=last).digest()
        digests.append(last)
    return b"".join(digests)


def shared(one: bytes, other: bytes) -> int:
    """How many leading blocks two chains have in common."""
    most = min(len(one), len(other)) // DIGEST
    left, right = (np.frombuffer(chain, f"V{DIGEST}", most) for chain in (one, other))
    differ = np.flatnonzero(left != right)
    return int(differ[0]) if differ.size else most
