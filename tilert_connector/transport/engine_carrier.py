"""The prefill node's end over a transfer engine: writes from the paged cache to the slot, without a copy of ours.

Invariants: source memory is registered once for each carrier; whatever the engine may still read stays alive, and a
closed writer's connection stays open, until its writes have ended.
"""

import contextlib
import logging
import socket
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announce import Place
from tilert_connector.transport.announced_writer import AnnouncedWriter, Post, say_bye
from tilert_connector.transport.base import Endpoint
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.engine import Engine, Span, Transfer
from tilert_connector.transport.frame import Frame
from tilert_connector.transport.slot_map import SlotMap
from tilert_connector.transport.sockets import begin_connect

__all__ = ["EngineCarrier"]

logger = logging.getLogger(__name__)
CLOSE_S = 1.0
_orphans: list[object] = []
"""What an engine may read for ever, since it never said that it had stopped."""


class _Target:
    """A slot, and who has it."""

    def __init__(self, peer: str, address: int, slot: SlotMap) -> None:
        self.peer = peer
        self.address = address
        self.slot = slot


class _Write:
    """One posted frame; keeps what the engine reads. gathered: memories that were registered for it alone."""

    def __init__(self, engine: Engine, transfer: Transfer, checksum: int, kept: object, gathered: list[Bytes]) -> None:
        self._engine = engine
        self._transfer = transfer
        self._checksum = checksum
        self._kept = kept
        self._gathered = gathered
        self._done_at = 0.0

    def advance(self) -> bool:
        if not self._done_at and self._transfer.done():
            self._done_at = time.monotonic()
        return self._done_at > 0

    def checksum(self) -> int:
        return self._checksum

    def over(self) -> bool:
        """Whether the engine reads nothing for it any more, as far as its word is good."""
        return self.advance() and time.monotonic() - self._done_at >= self._engine.patience_s

    def release(self) -> None:
        while self._gathered:
            self._engine.forget(self._gathered.pop().ctypes.data)
        self._kept = None


class EngineCarrier:
    """sources: memories, uint8[n], that frames are read from. Raises what `make` raises, and WireError."""

    depth = 4
    diligent = False

    def __init__(self, make: Callable[[], Engine], layout: KvLayout, sources: Sequence[Bytes]) -> None:
        self._engine = make()
        self._layout = layout
        self._known = sorted({(source.ctypes.data, source.nbytes) for source in sources if source.nbytes})
        self._starts = [start for start, _ in self._known]
        self._peers: dict[tuple[int, bytes], str] = {}  # (slot, epoch) -> peer
        self._abandoned: list[tuple[socket.socket, list[_Write]]] = []
        for start, size in self._known:
            self._engine.register(start, size)

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> AnnouncedWriter[_Target]:
        self._sweep()
        return AnnouncedWriter(begin_connect(endpoint.host, endpoint.port), generation, key, self)

    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_S
        while self._abandoned and time.monotonic() < deadline:
            self._sweep()
            time.sleep(0.001)
        if self._abandoned:
            logger.warning("%d writes have not ended; their memory is kept", len(self._abandoned))
            _orphans.extend([self._engine, *(posts for _, posts in self._abandoned)])
            for connection, _ in self._abandoned:
                connection.close()
            self._abandoned.clear()
        else:
            self._engine.close()

    def reach(self, place: Place, descriptors: Sequence[int]) -> _Target:
        key = place.slot, place.epoch
        if key not in self._peers:
            peer = self._engine.meet(place.peer)
            self._peers = {k: v for k, v in self._peers.items() if k[0] != place.slot} | {key: peer}
        return _Target(self._peers[key], place.address, SlotMap(self._layout, place))

    def post(self, target: _Target, header: bytes, frame: Frame, pieces: Sequence[memoryview]) -> _Write:
        self._sweep()
        target.slot.check(frame, pieces)
        digest = begin_checksum(header)
        sources: list[Bytes] = []
        gathered: list[Bytes] = []
        for piece in pieces:
            digest.update(piece)
            source = np.frombuffer(piece, np.uint8)
            if not self._registered(source):  # a part of a transposed tile, gathered for this frame
                source = source.copy()
                self._engine.register(source.ctypes.data, source.nbytes)
                gathered.append(source)
            sources.append(source)
        spans = list(_pair(sources, target.slot.spans(frame), target.address))
        transfer = self._engine.write(target.peer, spans)
        return _Write(self._engine, transfer, digest.intdigest(), (pieces, sources), gathered)

    def abandon(self, connection: socket.socket, posts: Sequence[Post]) -> None:
        self._abandoned.append((connection, [post for post in posts if isinstance(post, _Write)]))
        self._sweep()

    def _sweep(self) -> None:
        """Say bye for each writer whose last write has ended well; one that failed may still arrive."""
        for entry in list(self._abandoned):
            connection, posts = entry
            try:
                while posts and posts[0].over():
                    posts.pop(0).release()
            except WireError:
                # Not believed: the decode node takes its pages away instead.
                _orphans.append(posts.pop(0))
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                continue
            if not posts:
                self._abandoned.remove(entry)
                say_bye(connection)

    def _registered(self, source: Bytes) -> bool:
        address = source.ctypes.data
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address + source.nbytes <= sum(self._known[index])


def _pair(sources: Sequence[Bytes], spans: Iterator[tuple[int, int]], base: int) -> Iterator[Span]:
    """Cut both sides at each other's ends; they have the same bytes."""
    there, room = 0, 0
    for source in sources:
        here, left = source.ctypes.data, source.nbytes
        while left:
            if not room:
                offset, room = next(spans)
                there = base + offset
            size = min(left, room)
            yield here, there, size
            here, there, left, room = here + size, there + size, left - size, room - size
