"""The prefill node's end of a grant whose bytes travel another way than its connection.

Invariants: frames are announced in the order in which they were written, each after its bytes left our hands; no
method waits; a writer that leaves says so only when none of its writes is under way.
"""

import array
import contextlib
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tilert_connector.errors import WireError
from tilert_connector.transport.acks import Acks
from tilert_connector.transport.announce import BYE, Place, decode_place
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, CHECKSUM, Frame, pack_header
from tilert_connector.transport.readiness import Readiness
from tilert_connector.transport.sockets import connected

__all__ = ["AnnouncedWriter", "Mover", "Post", "say_bye"]

MAX_UNCONFIRMED = 32
DESCRIPTORS = 4


class Post(Protocol):
    """One frame on its way into the slot."""

    def advance(self) -> bool:
        """Move what can be moved now; whether its bytes have left our hands. Raises WireError."""

    def checksum(self) -> int:
        """The frame's; once `advance` returned True."""

    def release(self) -> None:
        """The sink has confirmed it: nothing is read for it any more."""


Target = TypeVar("Target")


class Mover(Protocol[Target]):
    """How one transport moves bytes; belongs to a carrier."""

    depth: int
    """Frames that may be under way at a time."""
    diligent: bool
    """Whether `Post.advance` itself moves bytes, so that it is worth calling again at once."""

    def reach(self, place: Place, descriptors: Sequence[int]) -> Target:
        """Get ready to write there; the descriptors are the caller's. Raises WireError."""

    def post(self, target: Target, header: bytes, frame: Frame, pieces: Sequence[memoryview]) -> Post:
        """Begin to move one frame; `pieces` stay referenced until it is done. Raises WireError."""

    def abandon(self, connection: socket.socket, posts: Sequence[Post]) -> None:
        """Take over what a closed writer had not been confirmed: `say_bye` when it is complete, and not before."""


class AnnouncedWriter(Generic[Target]):
    """One connection, one grant. Takes over `sock`, which is connecting."""

    def __init__(self, sock: socket.socket, generation: int, key: bytes, mover: Mover[Target]) -> None:
        self._sock = sock
        self._readiness = Readiness(sock)
        self._generation = generation
        self._mover = mover
        self._target: Target | None = None
        self._connected = False
        self._closed = False
        self._out = bytearray(ATTACH.pack(ATTACH_MAGIC, generation, key))
        self._in = bytearray()
        self._descriptors: list[int] = []
        self._posts: deque[tuple[bytes, Post]] = deque()
        self._announced: deque[Post] = deque()
        self._acks = Acks()

    def room(self) -> bool:
        busy = len(self._posts) >= self._mover.depth or self._acks.posted - self._acks.completed >= MAX_UNCONFIRMED
        return self._target is not None and not busy

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        if self._target is None:
            raise WireError("nothing can be written before the decode node said where")
        header = pack_header(self._acks.posted, self._generation, frame)
        self._posts.append((header, self._mover.post(self._target, header, frame, pieces)))
        self._acks.posted += 1

    def progress(self) -> None:
        try:
            self._connected = self._connected or connected(self._sock)
            if self._connected:
                self._announce()
                self._send()
                self._receive()
        except OSError as error:
            raise WireError(f"data connection lost: {error}") from error

    def completed(self) -> int:
        return self._acks.completed

    def interest(self) -> tuple[int, bool, bool] | None:
        if self._posts and not self._mover.diligent:
            return None
        # With bytes to move: the socket takes announcements at any time, so whoever polls comes back at once.
        return self._readiness.watch(self._connected, bool(self._out or self._posts)), True, False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._readiness.close()
        self._forget_descriptors()
        with contextlib.suppress(OSError):
            if self._connected:
                self._send()
        if self._out:  # in the middle of a message no other can begin
            self._shut()
        self._mover.abandon(self._sock, [*self._announced, *(post for _, post in self._posts)])
        self._posts.clear()
        self._announced.clear()

    def _announce(self) -> None:
        while self._posts and self._posts[0][1].advance():
            header, post = self._posts.popleft()
            self._out += header + CHECKSUM.pack(post.checksum())
            self._announced.append(post)

    def _send(self) -> None:
        if self._out:
            with contextlib.suppress(BlockingIOError):
                del self._out[: self._sock.send(self._out)]

    def _receive(self) -> None:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(4096, socket.CMSG_SPACE(DESCRIPTORS * 4))
        except BlockingIOError:
            return
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._descriptors.extend(found)
        if not data:
            raise ConnectionResetError("closed by the decode node")
        self._in += data
        if self._target is None:
            self._learn()
        if self._target is not None:
            for _ in range(self._acks.take(self._in)):
                self._announced.popleft().release()
            self._in.clear()

    def _learn(self) -> None:
        found = decode_place(self._in)
        if found is not None:
            place, read = found
            del self._in[:read]
            self._target = self._mover.reach(place, self._descriptors)
            self._forget_descriptors()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _forget_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def say_bye(connection: socket.socket) -> None:
    """Say that no write is under way, and close."""
    with contextlib.suppress(OSError):
        connection.send(BYE)
    connection.close()
