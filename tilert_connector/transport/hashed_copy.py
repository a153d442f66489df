"""A frame's copy and checksum in one native pass, for frames of whole cache lines.

Invariant: the checksum is the one of `checksum.begin_checksum`; who checks it need not know how it was taken.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np

from tilert_connector.transport.checksum import checksum_seed

__all__ = ["LINE", "SHORTEST", "HashedCopy", "kernel"]

logger = logging.getLogger(__name__)

LINE: Final = 64
SHORTEST: Final = 256
"""Bytes; xxh3 is another function below."""
MASK: Final = (1 << 64) - 1
SUMS: Final = (
    0x00000000C2B2AE3D,
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x0000000085EBCA77,
    0x27D4EB2F165667C5,
    0x000000009E3779B1,
)
SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
START: Final = np.array((*SUMS, *struct.unpack("<24Q", SECRET)), np.uint64)
Kernel = Callable[..., None]


@cache
def kernel() -> Kernel | None:
    """The native pass, or None where it cannot be had. The first call compiles or loads it; not for a process that
    will fork."""
    try:
        from tilert_connector.copy_kernel import move
    except Exception as error:  # whatever a compiler may raise: bytes can be moved without it
        logger.warning("shared memory is written at half the rate, its copy could not be compiled: %r", error)
        return None
    return move  # type: ignore[no-any-return]


class HashedCopy:
    """Copies one frame: pieces of `sizes` bytes at the addresses `sources`, into `rooms` bytes at `targets`, one after
    another. Each is a multiple of `LINE`, and all pieces are as many bytes as all rooms, at least `SHORTEST`."""

    def __init__(
        self,
        move: Kernel,
        header: bytes,
        sources: Sequence[int],
        sizes: Sequence[int],
        targets: Sequence[int],
        rooms: Sequence[int],
    ) -> None:
        self._move = move
        self._size = sum(sizes)
        self._parts = [np.array(one, np.int64) for one in (sources, sizes, targets, rooms)]
        self._at = np.array((0, 0, 0, 0, 0, self._size // LINE), np.int64)
        self._state = START.copy()
        seed = checksum_seed(header)
        self._state[8::2] += np.uint64(seed)
        self._state[9::2] -= np.uint64(seed)

    def advance(self, budget: int) -> bool:
        """Copy about `budget` bytes; whether all are copied."""
        self._move(self._state, self._at, *self._parts, -(-budget // LINE))
        return bool(self._at[4] == self._at[5])

    def checksum(self) -> int:
        """Once all is copied."""
        sums = self._state[:8].tolist()
        keys = struct.unpack_from("<8Q", self._state[8:].tobytes(), 11)
        total = self._size * 0x9E3779B185EBCA87
        for at in range(0, 8, 2):
            product = (sums[at] ^ keys[at]) * (sums[at + 1] ^ keys[at + 1])
            total += (product & MASK) ^ (product >> 64)
        total &= MASK
        total = (total ^ (total >> 37)) * 0x165667919E3779F9 & MASK
        return total ^ (total >> 32)
