"""Shared memory, prefill node's end: one copy in all, from the paged cache into the slot.

Invariant: source memory is read only inside `Post.advance`, so whoever keeps others out of that may overwrite it.
"""

import os
import socket
from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announce import Place
from tilert_connector.transport.announced_writer import AnnouncedWriter, say_bye
from tilert_connector.transport.base import Endpoint
from tilert_connector.transport.frame import Frame
from tilert_connector.transport.mapped import collapse, lay_file, reserve, rounded
from tilert_connector.transport.slot_map import SlotMap
from tilert_connector.transport.sockets import begin_connect

__all__ = ["ShmCarrier"]

GROUP = 1 << 20
"""Bytes that are copied and then hashed, so that the hash finds them in a cache. Less is slower: the two do not like to
take turns."""
BUDGET = 4 << 20
"""Bytes moved in one call: about half a millisecond."""
MAX_MAPPED = 64
"""Slots that stay mapped between grants: mapping one anew costs as much as copying a good part of it."""


class _Target:
    """A mapped slot."""

    def __init__(self, epoch: bytes, memory: Bytes, slot: SlotMap) -> None:
        self.epoch = epoch
        self.memory = memory
        self.slot = slot


class _Copy:
    """One frame; its generator stops after each group."""

    def __init__(self, header: bytes, pieces: Sequence[memoryview], views: Iterator[Bytes]) -> None:
        self._digest = xxhash.xxh3_64(header)
        self._steps = self._groups([piece.cast("B") for piece in pieces], views)
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


class ShmCarrier:
    """`layout`: of the slots that it will write to."""

    depth = 1
    diligent = True

    def __init__(self, layout: KvLayout) -> None:
        self._layout = layout
        self._targets: dict[int, _Target] = {}  # by slot, least recently used first

    def open(self, endpoint: Endpoint, generation: int, key: bytes, place: bytes = b"") -> AnnouncedWriter[_Target]:
        return AnnouncedWriter(begin_connect(endpoint.host, endpoint.port, here=True), generation, key, self)

    def close(self) -> None:
        self._targets.clear()

    def reach(self, place: Place, descriptors: Sequence[int]) -> _Target:
        known = self._targets.pop(place.slot, None)
        if known is None or known.epoch != place.epoch:
            known = self._map(place, descriptors)
        self._targets[place.slot] = known
        while len(self._targets) > MAX_MAPPED:
            del self._targets[next(iter(self._targets))]
        return known

    def post(self, target: _Target, header: bytes, frame: Frame, pieces: Sequence[memoryview]) -> _Copy:
        target.slot.check(frame, pieces)
        return _Copy(header, pieces, target.slot.views(target.memory, frame))

    def abandon(self, connection: socket.socket, posts: Sequence[object]) -> None:
        say_bye(connection)  # what was not copied yet never will be

    def _map(self, place: Place, descriptors: Sequence[int]) -> _Target:
        if not descriptors:
            raise WireError("place without memory: the decode node sent no descriptor")
        try:
            if os.fstat(descriptors[0]).st_size < rounded(place.size):
                raise WireError("place is larger than the memory that came along")
            memory = reserve(place.size)
            lay_file(memory, descriptors[0], populate=True)
            collapse(memory)
        except OSError as error:
            raise WireError(f"place cannot be mapped: {error}") from error
        return _Target(place.epoch, memory, SlotMap(self._layout, place))
