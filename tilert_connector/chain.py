"""Whose prefix is whose: a chain of digests over a prompt's token ids.

Invariant: equal digests mean equal token ids from the first to the end of that block, for the same model and the same
tenant: a chain starts with a digest of both, and each block's digest is keyed with the one before it.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

__all__ = ["BLOCK", "DIGEST", "Prefix", "describe", "extend", "follow", "root", "shared_blocks"]

BLOCK: Final = 64
"""Tokens per digest: of a prompt that was edited, at most so many are sent again although they were held."""
DIGEST: Final = 16
"""Bytes of a digest."""


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence of tokens, told without its ids where they need not be known.

    chain: the root, then the digest of each full block. ids: the token ids from `first` on, a multiple of BLOCK.
    """

    chain: bytes
    first: int
    ids: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How many."""
        return self.first + len(self.ids)

    def after(self, ids: Sequence[int]) -> "Prefix":
        """With these token ids behind it."""
        known = (*self.ids, *ids)
        done = len(self.chain) // DIGEST - 1
        chain = self.chain + extend(self.chain[-DIGEST:], known[done * BLOCK - self.first :])
        return Prefix(chain=chain, first=self.first, ids=known)

    def tail(self, blocks: int) -> tuple[int, ...]:
        """Up to BLOCK of the token ids that follow `blocks` blocks; none where they are not known."""
        start = blocks * BLOCK - self.first
        return self.ids[start : start + BLOCK] if start >= 0 else ()


def root(model: str, salt: str) -> bytes:
    """What the first block follows. model: names weights and numerics. salt: the tenant's (vLLM's `cache_salt`)."""
    return hashlib.blake2b(f"{len(model)}:{model}{salt}".encode(), digest_size=DIGEST).digest()


def describe(ids: Sequence[int], origin: bytes) -> Prefix:
    """The prefix that is all of `ids`, after `origin`; only the ids behind the last full block are kept."""
    chain = origin + extend(origin, ids)
    first = len(ids) // BLOCK * BLOCK
    return Prefix(chain=chain, first=first, ids=tuple(int(token) for token in ids[first:]))


def extend(last: bytes, ids: Sequence[int]) -> bytes:
    """Digests of the full blocks of `ids`, which follow the block (or root) whose digest is `last`."""
    digests = []
    data = np.asarray(ids, "<u4").tobytes()
    for start in range(0, len(data) - 4 * BLOCK + 1, 4 * BLOCK):
        last = hashlib.blake2b(data[start : start + 4 * BLOCK], digest_size=DIGEST, key=last).digest()
        digests.append(last)
    return b"".join(digests)


def shared_blocks(one: bytes, other: bytes) -> int:
    """How many leading blocks two chains have in common; -1 if not even model and tenant are the same."""
    most = min(len(one), len(other)) // DIGEST
    left, right = (np.frombuffer(chain, f"V{DIGEST}", most) for chain in (one, other))
    differ = np.flatnonzero(left != right)
    return (int(differ[0]) if differ.size else most) - 1


def follow(ids: Sequence[int], held: int, tail: Sequence[int]) -> int:
    """How many leading tokens are held: `held` of them, and then as far as `tail` agrees with `ids`."""
    rest = ids[held : held + len(tail)]
    return held + next((n for n, (one, other) in enumerate(zip(rest, tail, strict=False)) if one != other), len(rest))
