"""The thread that receives one grant's frames straight into slot memory.

Invariant: it ends by itself on the last byte, on the first error and on `stop`, closes its connection,
and touches no slot memory after `ended` is done.
"""

import asyncio
import socket
import threading

import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.base import Report
from tilert_connector.transport.frame import ACK, CHECKSUM, HEADER, unpack_header
from tilert_connector.transport.landing import Landing

__all__ = ["LandingThread"]


class LandingThread(threading.Thread):
    """Owns `sock` (blocking) from `start` on. `ended` is a future of the loop that made it."""

    def __init__(self, sock: socket.socket, landing: Landing) -> None:
        super().__init__(name=f"landing-{landing.grant.generation}", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._landing = landing
        self._scratch = np.empty(0, np.uint8)
        self._lock = threading.Lock()
        self._closed = False
        self.stopped = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.report = Report(generation=landing.grant.generation, landed=False, landed_bytes=0)

    def stop(self) -> None:
        """Wake the thread out of whatever call it is in; it then ends. Does not wait."""
        self.stopped = True
        with self._lock:
            if not self._closed:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # The peer closed first; the thread is on its way out.
                    return

    def run(self) -> None:
        reason = ""
        try:
            while not self._landing.complete and not self.stopped:
                self._frame()
        except (OSError, WireError) as error:
            reason = str(error)
        except Exception as error:  # a defect here must end the handoff, not hang it
            reason = f"landing failed: {error!r}"
        finally:
            with self._lock:
                self._closed = True
                self._sock.close()
        self.report = Report(
            generation=self._landing.grant.generation,
            landed=self._landing.complete,
            landed_bytes=self._landing.landed_bytes,
            reason=reason,
        )
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            # The loop is closed: nobody is left to be told.
            return

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

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

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        self._fill(memoryview(data))
        return data

    def _fill(self, room: memoryview) -> None:
        while room:
            count = self._sock.recv_into(room, len(room), socket.MSG_WAITALL)
            if count == 0:
                raise WireError("data connection closed by the prefill node before all had landed")
            room = room[count:]
