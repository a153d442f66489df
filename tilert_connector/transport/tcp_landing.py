"""TCP: receives one grant's frames straight into slot memory.

Invariant: bytes reach slot memory by this thread's hand alone, so its end is the end of the grant.
"""

import socket

import numpy as np

from tilert_connector.layout.views import Bytes
from tilert_connector.transport.frame import ACK, CHECKSUM, HEADER, unpack_header
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LandingThread

__all__ = ["TcpLanding"]


class TcpLanding(LandingThread):
    """Header, bytes, checksum; answers with an ack."""

    def __init__(self, sock: socket.socket, landing: Landing) -> None:
        super().__init__(sock, landing)
        self._scratch = np.empty(0, np.uint8)

    def _frame(self) -> None:
        index, generation, frame = unpack_header(self._read(HEADER.size))
        views = self._landing.views(index, generation, frame)
        for view in views:
            self._receive(view)
        (checksum,) = CHECKSUM.unpack(self._read(CHECKSUM.size))
        self._landing.landed(frame, views, checksum)
        self._sock.sendall(ACK.pack(index))

    def _receive(self, view: Bytes) -> None:
        if view.ndim == 1:
            self._fill(view.data)
            return
        # The part of a transposed tile: too many pieces of a few bytes to receive each in place.
        if self._scratch.size < view.size:
            self._scratch = np.empty(view.size, np.uint8)
        part = self._scratch[: view.size]
        self._fill(part.data)
        view[...] = part.reshape(view.shape)
