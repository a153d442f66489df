"""The decode node's end of a grant whose bytes come another way: it reads announcements and checks the slot.

Invariant: when it has ended, either every byte landed, or the writer said that none of its writes is under way, or the
slot's pages were taken away from it.
"""

import os
import socket
import time
from collections.abc import Sequence

from tilert_connector.errors import WireError
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announce import ANNOUNCEMENT, BYE, Place, encode_place
from tilert_connector.transport.frame import ACK, CHECKSUM, HEADER, Frame, unpack_header
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LEFT_EARLY, LandingThread
from tilert_connector.transport.pages import SlotPages

__all__ = ["AnnouncedLanding"]

GRACE_S = 0.2
"""For a writer that is told to stop to say that it has. One that lives does so at once."""
RECHECK_S = 0.0005


class AnnouncedLanding(LandingThread):
    """place: sent to the writer first, with `descriptor`, which it takes over, unless that is negative.
    patience_s: how long bytes may come after their announcement; 0 if the writer knows that they have arrived."""

    def __init__(
        self,
        sock: socket.socket,
        landing: Landing,
        pages: SlotPages,
        place: Place,
        descriptor: int = -1,
        patience_s: float = 0.0,
    ) -> None:
        super().__init__(sock, landing)
        self._pages = pages
        self._place = place
        self._descriptor = descriptor
        self._patience_s = patience_s
        self._said_bye = False

    def stop(self) -> None:
        """As for every landing; the writer is told first, and heard for a short while."""
        self.stopped = True
        self._shut(socket.SHUT_WR)
        self._loop.call_later(GRACE_S, self._shut, socket.SHUT_RDWR)

    def _begin(self) -> None:
        if self._patience_s:
            # What lies there already must not be taken for what is to arrive: it would be acknowledged too early, and
            # the late bytes would land on the next handoff.
            self._landing.blot()
        data = encode_place(self._place)
        if self._descriptor < 0:
            self._sock.sendall(data)
            return
        try:
            socket.send_fds(self._sock, [data], [self._descriptor])
        finally:
            os.close(self._descriptor)

    def _frame(self) -> None:
        data = self._announcement()
        index, generation, frame = unpack_header(data[: HEADER.size])
        (checksum,) = CHECKSUM.unpack(data[HEADER.size :])
        views = self._landing.views(index, generation, frame)
        if self._patience_s:
            self._await(frame, views, checksum)
        self._landing.landed(frame, views, checksum)
        if self._pages.epoch != self._place.epoch:
            raise WireError("the slot's memory was replaced while it was written")
        self._sock.sendall(ACK.pack(index))

    def _announcement(self) -> bytearray:
        data = self._read(ANNOUNCEMENT)
        if data == BYE:
            # Where bytes may come after their announcement, a writer does not know whether it has stopped.
            self._said_bye = not self._patience_s
            raise WireError(LEFT_EARLY)
        return data

    def _await(self, frame: Frame, views: Sequence[Bytes], checksum: int) -> None:
        deadline = time.monotonic() + self._patience_s
        while not self._landing.fits(frame, views, checksum) and not self.stopped:
            if time.monotonic() > deadline:
                return
            time.sleep(RECHECK_S)

    def _settle(self) -> None:
        if self._landing.complete:
            return
        if not self._said_bye:
            self._shut(socket.SHUT_WR)
            self._sock.settimeout(GRACE_S)
            self._listen_for_bye()
        if not self._said_bye and self._pages.epoch == self._place.epoch:
            self._pages.renew()
            self.lost_others = True

    def _listen_for_bye(self) -> None:
        """Its last announcements may still be on the way."""
        deadline = time.monotonic() + GRACE_S
        try:
            while time.monotonic() < deadline:
                self._announcement()
        except (OSError, WireError):
            return
