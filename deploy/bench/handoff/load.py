"""What is moved: 64 MB that lie in one piece, and 237 blocks of 64 KB from all over a cache.

Invariant: the cache is many times larger than the processor's, so that nothing is measured on bytes that lie there by
accident of the benchmark.
"""

import ctypes

import msgspec
import numpy as np

from tilert_connector.config import ConnectorConfig
from tilert_connector.exporter import Exporter, PagedPlane
from tilert_connector.layout import KvLayout, mla_layout
from tilert_connector.transport import Frame, cut_frames

__all__ = ["LAYOUT", "LOADS", "TOKENS", "Cache", "Load"]

LAYOUT: KvLayout = mla_layout([0], 4, 960, 64)
"""One plane, 4 KiB a token."""
BLOCK = 16
"""Tokens: 64 KiB."""
TOKENS = 16384
"""Of a slot: 64 MiB."""
BLOCKS = 4096
"""Of the cache: 256 MiB."""


class Load(msgspec.Struct, frozen=True):
    """name; tokens; pieces; whether the blocks lie one after another."""

    name: str
    tokens: int
    pieces: int
    joined: bool

    @property
    def bytes(self) -> int:
        return self.tokens * LAYOUT.token_bytes


LOADS = (Load("64 MB in one piece", TOKENS, 1, True), Load("237 pieces of 64 KB", 237 * BLOCK, 237, False))


class Cache:
    """A paged cache with random bytes."""

    def __init__(self) -> None:
        words = np.random.default_rng(0).integers(0, 2**63, BLOCKS * BLOCK * LAYOUT.token_bytes // 8, np.uint64)
        self.memory = words.view(np.uint8)
        self._exporter = Exporter(LAYOUT, BLOCK, {0: PagedPlane(self.memory, BLOCK * LAYOUT.token_bytes, 0)})
        self._random = np.random.default_rng(1)

    def frames(self, load: Load) -> list[tuple[Frame, list[memoryview]]]:
        """The load's frames, from blocks that no other call need have used."""
        count = load.tokens // BLOCK
        if load.joined:
            first = int(self._random.integers(0, BLOCKS - count + 1))
            blocks = list(range(first, first + count))
        else:
            # Every other block at most, so that none of them are neighbours.
            blocks = [2 * int(block) for block in self._random.permutation(BLOCKS // 2)[:count]]
        cut = cut_frames(LAYOUT, self._exporter.planes, 0, load.tokens, ConnectorConfig().frame_bytes)
        return [(frame, self._exporter.pieces(frame, blocks)) for frame in cut]

    def pieces(self, load: Load) -> list[memoryview]:
        """The same as the fewest pieces that they make."""
        parts = [piece for _, pieces in self.frames(load) for piece in pieces]
        if not load.joined:
            return parts
        first = address(parts[0]) - self.memory.ctypes.data
        return [memoryview(self.memory.data)[first : first + load.bytes]]


def address(piece: memoryview) -> int:
    """Where it lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(piece))
