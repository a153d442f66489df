"""One frame's way into a mapped slot: in one native pass, or by what Python has.

Invariant: one call moves no more than about `BUDGET` bytes; source memory is read only inside `Post.advance`.
"""

import ctypes
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announced_writer import Post
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.hashed_copy import LINE, SHORTEST, HashedCopy, Kernel

__all__ = ["BUDGET", "begin_copy"]

GROUP = 1 << 20
"""Bytes that are copied and then hashed, so that the hash finds them in a cache. Less is slower: the two do not like to
take turns."""
BUDGET = 4 << 20
"""Bytes moved in one call: about half a millisecond."""


def begin_copy(move: Kernel | None, header: bytes, pieces: Sequence[memoryview], targets: Sequence[Bytes]) -> Post:
    """`targets`: as many bytes as the pieces have. Natively where `move` is there and takes the frame as it lies."""
    parts = [piece for piece in pieces if piece.nbytes]
    native = _native(move, header, parts, targets) if move is not None else None
    return native or _PlainCopy(header, [piece.cast("B") for piece in parts], iter(targets))


class _PlainCopy:
    """One frame, by what Python has; its generator stops after each group."""

    def __init__(self, header: bytes, pieces: Sequence[memoryview], views: Iterator[Bytes]) -> None:
        self._digest = begin_checksum(header)
        self._steps = self._groups(pieces, views)
        self._over = False

    def advance(self) -> bool:
        moved = 0
        while moved < BUDGET and not self._over:
            size = next(self._steps, -1)
            self._over = size < 0
            moved += size
        return self._over

    def checksum(self) -> int:
        return int(self._digest.intdigest())

    def release(self) -> None:
        """Nothing is held for it."""

    def _groups(self, pieces: Sequence[memoryview], targets: Iterator[Bytes]) -> Iterator[int]:
        """Copies, and then hashes, about `GROUP` bytes for each number of bytes that it yields."""
        update = self._digest.update
        parts: list[memoryview] = []
        room, filled, end, group = memoryview(b""), 0, 0, 0
        for piece in pieces:
            taken, size = 0, len(piece)
            while taken < size:
                if filled == end:
                    view = next(targets)
                    if view.ndim == 2:  # part of a transposed tile, which comes as one gathered piece
                        part = piece[taken : taken + view.size]
                        view[...] = np.frombuffer(part, np.uint8).reshape(view.shape)
                        parts.append(part)
                        taken, group = taken + view.size, group + view.size
                        continue
                    room, filled, end = view.data, 0, view.size
                count = min(GROUP, size - taken, end - filled)
                part = piece if count == size else piece[taken : taken + count]
                room[filled : filled + count] = part
                parts.append(part)
                taken, filled, group = taken + count, filled + count, group + count
                if group >= GROUP:
                    for part in parts:
                        update(part)
                    parts.clear()
                    yield group
                    group = 0
        for part in parts:
            update(part)
        yield group


class _NativeCopy:
    """One frame of whole cache lines. `held`: what lies at the addresses that `copy` knows."""

    def __init__(self, copy: HashedCopy, held: object) -> None:
        self._copy = copy
        self._held = held

    def advance(self) -> bool:
        return self._copy.advance(BUDGET)

    def checksum(self) -> int:
        return self._copy.checksum()

    def release(self) -> None:
        """Nothing is held for it."""


def _native(move: Kernel, header: bytes, pieces: Sequence[memoryview], targets: Sequence[Bytes]) -> Post | None:
    """None if it is not made of whole cache lines that lie one after another."""
    sizes, rooms = [piece.nbytes for piece in pieces], [view.size for view in targets]
    whole = math.gcd(LINE, *sizes, *rooms) == LINE
    if not whole or sum(sizes) < SHORTEST or any(view.ndim > 1 for view in targets):
        return None
    there = _addresses([view.data for view in targets])
    return _NativeCopy(HashedCopy(move, header, _addresses(pieces), sizes, there, rooms), (pieces, targets))


def _addresses(pieces: Sequence[memoryview]) -> list[int]:
    find, byte = ctypes.addressof, ctypes.c_char.from_buffer
    try:
        return [find(byte(piece)) for piece in pieces]
    except TypeError:  # some may not be written to
        return [int(np.frombuffer(piece, np.uint8).ctypes.data) for piece in pieces]
