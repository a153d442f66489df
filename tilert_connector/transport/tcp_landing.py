"""TCP: receives one grant's frames straight into slot memory.

Invariant: bytes reach slot memory by this thread's hand alone, so its end is the end of the grant.
"""

import socket
from collections.abc import Callable

import numpy as np

from tilert_connector.transport.frame import ACK, CHECKSUM, HEADER, unpack_header
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LandingThread

__all__ = ["TcpLanding"]

CHUNK = 512 * 1024


class TcpLanding(LandingThread):
    """Header, bytes, checksum; answers with an ack."""

    def __init__(self, sock: socket.socket, landing: Landing) -> None:
        super().__init__(sock, landing)
        self._scratch = np.empty(0, np.uint8)

    def _frame(self) -> None:
        index, generation, frame = unpack_header(self._read(HEADER.size))
        views = self._landing.views(index, generation, frame)
        digest = self._landing.digest(frame)
        for view in views:
            if view.ndim == 1:
                self._receive(view.data, digest.update)
                continue
            # The part of a transposed tile: too many pieces of a few bytes to receive each in place.
            if self._scratch.size < view.size:
                self._scratch = np.empty(view.size, np.uint8)
            part = self._scratch[: view.size]
            self._receive(part.data, digest.update)
            view[...] = part.reshape(view.shape)
        (checksum,) = CHECKSUM.unpack(self._read(CHECKSUM.size))
        self._landing.count(frame, digest.intdigest() == checksum)
        self._sock.sendall(ACK.pack(index))

    def _receive(self, room: memoryview, update: Callable[[memoryview], None]) -> None:
        """In chunks that are hashed while they lie in the core's own cache."""
        for start in range(0, len(room), CHUNK):
            part = room[start : start + CHUNK]
            self._fill(part)
            update(part)
