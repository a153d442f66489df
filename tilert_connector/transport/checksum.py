"""A frame's checksum: xxh3-64 over its bytes, seeded with xxh3-64 over its header.

Invariant: it begins with the bytes themselves, so that whoever copies them can take it in the same pass, a cache line
at a time (see `hashed_copy`); a header that is damaged or belongs to another frame still spoils it.
"""

import xxhash

__all__ = ["begin_checksum", "checksum_seed"]


def checksum_seed(header: bytes) -> int:
    """What the bytes' checksum is seeded with, 64 bits."""
    return int(xxhash.xxh3_64_intdigest(header))


def begin_checksum(header: bytes) -> "xxhash.xxh3_64":
    """Update it with the frame's bytes in wire order."""
    return xxhash.xxh3_64(seed=checksum_seed(header))
