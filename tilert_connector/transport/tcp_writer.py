"""TCP, prefill node's end: scatter/gather from the paged cache, without a staging copy and without blocking.

Invariant: source memory is read only inside `write` (for the checksum) and `progress`; whoever keeps
other threads out of those two, or closes the writer, may overwrite the source.
"""

import socket
from collections import deque
from collections.abc import Sequence

from tilert_connector.errors import WireError
from tilert_connector.transport.acks import Acks
from tilert_connector.transport.base import Endpoint
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, CHECKSUM, Frame, pack_header
from tilert_connector.transport.sockets import begin_connect, connected

__all__ = ["TcpCarrier", "TcpWriter"]

PIECES_PER_CALL = 512
"""Below IOV_MAX (1024 on Linux)."""


class TcpCarrier:
    """Opens one connection per grant."""

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> "TcpWriter":
        """Begin to connect. Raises WireError if the address is unusable."""
        return TcpWriter(begin_connect(endpoint.host, endpoint.port), generation, key)

    def close(self) -> None:
        """Nothing is left open."""


class TcpWriter:
    """One connection, one grant."""

    def __init__(self, sock: socket.socket, generation: int, key: bytes) -> None:
        self._sock = sock
        self._generation = generation
        self._out: deque[memoryview] = deque([memoryview(ATTACH.pack(ATTACH_MAGIC, generation, key))])
        self._acks = Acks()
        self._connected = False

    def room(self) -> bool:
        return not self._out

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        header = pack_header(self._acks.posted, self._generation, frame)
        digest = begin_checksum(header)
        self._out.append(memoryview(header))
        for piece in pieces:
            flat = piece.cast("B")
            digest.update(flat)
            self._out.append(flat)
        self._out.append(memoryview(CHECKSUM.pack(digest.intdigest())))
        self._acks.posted += 1

    def progress(self) -> None:
        try:
            if self._connect():
                self._send()
                self._receive()
        except OSError as error:
            raise WireError(f"data connection lost: {error}") from error

    def completed(self) -> int:
        return self._acks.completed

    def interest(self) -> tuple[int, bool, bool] | None:
        return self._sock.fileno(), self._connected, bool(self._out)

    def close(self) -> None:
        self._out.clear()
        self._sock.close()

    def _connect(self) -> bool:
        self._connected = self._connected or connected(self._sock)
        return self._connected

    def _send(self) -> None:
        """One call: the caller decides how long it may go on."""
        if not self._out:
            return
        pieces = [self._out[i] for i in range(min(len(self._out), PIECES_PER_CALL))]
        try:
            sent = self._sock.sendmsg(pieces)
        except BlockingIOError:
            return
        while sent:
            head = self._out.popleft()
            if sent < len(head):
                self._out.appendleft(head[sent:])
                return
            sent -= len(head)

    def _receive(self) -> None:
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("closed by the decode node")
        self._acks.take(data)
