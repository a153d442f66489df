"""The thread that sees one grant's connection to its end, whatever the transport.

Invariant: it ends by itself on the last byte, on the first error and on `stop`, closes its connection, and
nothing of its grant can land in slot memory after `ended` is done.
"""

import asyncio
import socket
import threading

from tilert_connector.errors import WireError
from tilert_connector.transport.base import Report
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.readiness import Readiness

__all__ = ["LEFT_EARLY", "LandingThread"]

LEFT_EARLY = "data connection closed by the prefill node before all had landed"


class LandingThread(threading.Thread):
    """Owns `sock` (blocking) from `start` on. `ended` is a future of the loop that made it.

    A transport says in `_frame` how one frame arrives, and in `_settle` what it takes to be sure that no more can.
    """

    def __init__(self, sock: socket.socket, landing: Landing) -> None:
        super().__init__(name=f"landing-{landing.grant.generation}", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._readiness = Readiness(sock)
        self._landing = landing
        self._lock = threading.Lock()
        self._closed = False
        self.stopped = False
        self.lost_others = False
        """Whether ending this grant took the state of every other writer of the slot too."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.report = Report(generation=landing.grant.generation, landed=False, landed_bytes=0)

    def stop(self) -> None:
        """Wake the thread out of whatever call it is in; it then ends. Does not wait."""
        self.stopped = True
        self._shut(socket.SHUT_RDWR)

    def run(self) -> None:
        reason = ""
        try:
            self._begin()
            while not self._landing.complete and not self.stopped:
                self._frame()
        except (OSError, WireError) as error:
            reason = str(error)
        except Exception as error:  # a defect here must end the handoff, not hang it
            reason = f"landing failed: {error!r}"
        finally:
            self._settle()
            with self._lock:
                self._closed = True
                self._readiness.close()
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

    def _begin(self) -> None:
        """What comes before the first frame."""

    def _frame(self) -> None:
        """Land one frame and confirm it. Raises OSError, WireError."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Make sure that nothing more can land; bounded."""

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _shut(self, how: int) -> None:
        with self._lock:
            if not self._closed:
                try:
                    self._sock.shutdown(how)
                except OSError:
                    # The peer closed first; the thread is on its way out.
                    return

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        self._fill(memoryview(data))
        return data

    def _fill(self, room: memoryview) -> None:
        while room:
            self._readiness.wait()
            count = self._sock.recv_into(room, len(room), socket.MSG_WAITALL)
            if count == 0:
                raise WireError(LEFT_EARLY)
            room = room[count:]
