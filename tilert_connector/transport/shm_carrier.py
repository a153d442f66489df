"""Shared memory, prefill node's end: one copy in all, from the paged cache into the slot.

Invariant: source memory is read only inside `Post.advance`, so whoever keeps others out of that may overwrite it.
"""

import os
import socket
from collections.abc import Sequence

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announce import Place
from tilert_connector.transport.announced_writer import AnnouncedWriter, Post, say_bye
from tilert_connector.transport.base import Endpoint
from tilert_connector.transport.frame import Frame
from tilert_connector.transport.hashed_copy import Kernel, kernel
from tilert_connector.transport.mapped import collapse, lay_file, reserve, rounded
from tilert_connector.transport.shm_copy import begin_copy
from tilert_connector.transport.slot_map import SlotMap
from tilert_connector.transport.sockets import begin_connect

__all__ = ["ShmCarrier"]

MAX_MAPPED = 64
"""Slots that stay mapped between grants: mapping one anew costs as much as copying a good part of it."""


class _Target:
    """A mapped slot."""

    def __init__(self, epoch: bytes, memory: Bytes, slot: SlotMap) -> None:
        self.epoch = epoch
        self.memory = memory
        self.slot = slot


class ShmCarrier:
    """`layout`: of the slots that it will write to."""

    depth = 1
    diligent = True

    def __init__(self, layout: KvLayout) -> None:
        self._layout = layout
        self._kernel: Kernel | None = kernel()
        self._targets: dict[int, _Target] = {}  # by slot, least recently used first

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> AnnouncedWriter[_Target]:
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

    def post(self, target: _Target, header: bytes, frame: Frame, pieces: Sequence[memoryview]) -> Post:
        target.slot.check(frame, pieces)
        return begin_copy(self._kernel, header, pieces, list(target.slot.views(target.memory, frame)))

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
