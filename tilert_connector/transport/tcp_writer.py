"""TCP, prefill node's end: scatter/gather from the paged cache, without a staging copy and without blocking.

Invariant: source memory is read only inside `write` (for the checksum) and `progress`; whoever keeps
other threads out of those two, or closes the writer, may overwrite the source.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Sequence

import xxhash

from tilert_connector.errors import WireError
from tilert_connector.transport.base import Endpoint
from tilert_connector.transport.frame import ACK, ATTACH, ATTACH_MAGIC, CHECKSUM, Frame, pack_header

__all__ = ["TcpCarrier", "TcpWriter", "keep_alive"]

PIECES_PER_CALL = 512
"""Below IOV_MAX (1024 on Linux)."""


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel find a peer that vanished without a word within about half a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class TcpCarrier:
    """Opens one connection per grant."""

    def open(self, endpoint: Endpoint, generation: int, key: bytes, place: bytes = b"") -> "TcpWriter":
        """Begin to connect. Raises WireError if the address is unusable."""
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            code = sock.connect_ex((endpoint.host, endpoint.port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            keep_alive(sock)
        except OSError as error:
            sock.close()
            raise WireError(f"cannot connect to {endpoint.host}:{endpoint.port}: {error}") from error
        return TcpWriter(sock, generation, key)

    def close(self) -> None:
        """Nothing is left open."""


class TcpWriter:
    """One connection, one grant."""

    def __init__(self, sock: socket.socket, generation: int, key: bytes) -> None:
        self._sock = sock
        self._generation = generation
        self._out: deque[memoryview] = deque([memoryview(ATTACH.pack(ATTACH_MAGIC, generation, key))])
        self._in = bytearray()
        self._connected = False
        self._posted = 0
        self._completed = 0

    def room(self) -> bool:
        return not self._out

    def write(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        header = pack_header(self._posted, self._generation, frame)
        digest = xxhash.xxh3_64(header)
        self._out.append(memoryview(header))
        for piece in pieces:
            flat = piece.cast("B")
            digest.update(flat)
            self._out.append(flat)
        self._out.append(memoryview(CHECKSUM.pack(digest.intdigest())))
        self._posted += 1

    def progress(self) -> None:
        try:
            if self._connect():
                self._send()
                self._receive()
        except OSError as error:
            raise WireError(f"data connection lost: {error}") from error

    def completed(self) -> int:
        return self._completed

    def interest(self) -> tuple[int, bool, bool] | None:
        return self._sock.fileno(), self._connected, bool(self._out)

    def close(self) -> None:
        self._out.clear()
        self._sock.close()

    def _connect(self) -> bool:
        if not self._connected:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            try:
                self._sock.getpeername()
            except OSError as error:
                if error.errno == errno.ENOTCONN:
                    return False
                raise
            self._connected = True
        return True

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
        self._in += data
        while len(self._in) >= ACK.size:
            (index,) = ACK.unpack_from(self._in)
            del self._in[: ACK.size]
            if index != self._completed or index >= self._posted:
                raise WireError(f"acknowledged frame {index}, expected {self._completed}")
            self._completed += 1
