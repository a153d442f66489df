"""One frame's way into a mapped slot: in one native pass, or by what Python has.

Invariant: one call moves no more than about `BUDGET` bytes; source memory is read only inside `Post.advance`.
"""

import ctypes
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
    flat = [piece.cast("B") for piece in pieces if piece.nbytes]
    size = sum(map(len, flat))
    if move is not None and size >= SHORTEST and (spans := _spans(flat, targets)):
        return _NativeCopy(HashedCopy(move, header, size), spans, (flat, targets))
    return _PlainCopy(header, flat, iter(targets))


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
    """One frame of whole cache lines. `spans`: (source address, target address, bytes), one after another."""

    def __init__(self, copy: HashedCopy, spans: list[int], held: object) -> None:
        self._copy = copy
        self._spans = spans
        self._held = held  # what lies at the addresses

    def advance(self) -> bool:
        end, moved = 0, 0
        while end < len(self._spans) and moved < BUDGET:
            moved += self._spans[end + 2]
            end += 3
        if excess := max(0, moved - BUDGET) // LINE * LINE:  # the last one goes on in the next call
            source, target, size = self._spans[end - 3 : end]
            self._spans[end:end] = [source + size - excess, target + size - excess, excess]
            self._spans[end - 1] -= excess
        self._copy.copy(self._spans[:end])
        del self._spans[:end]
        return not self._spans

    def checksum(self) -> int:
        return self._copy.checksum()

    def release(self) -> None:
        """Nothing is held for it."""


def _spans(pieces: Sequence[memoryview], targets: Sequence[Bytes]) -> list[int] | None:
    """What a native copy takes; None if it is not made of whole cache lines that lie one after another."""
    if not all(view.ndim == 1 for view in targets):
        return None
    spans: list[int] = []
    ends = iter(targets)
    target, room = 0, 0
    for piece in pieces:
        source, size = _address(piece), len(piece)
        while size:
            if not room:
                view = next(ends)
                target, room = view.ctypes.data, view.size
            count = min(size, room)
            if count % LINE:
                return None
            spans += (source, target, count)
            source, target, size, room = source + count, target + count, size - count, room - count
    return spans


def _address(piece: memoryview) -> int:
    if piece.readonly:
        return int(np.frombuffer(piece, np.uint8).ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(piece))
