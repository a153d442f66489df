"""Shared memory, decode node's end: hands its writer the slot's memory, and takes the pages away to stop it.

A writer is trusted after its grant has ended well: it could keep the memory that it was handed. Peers are processes of
the same user (or root) on the same host, in the same network name space.
"""

import socket
from collections.abc import Sequence

from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.transport.announce import Place
from tilert_connector.transport.announced_landing import AnnouncedLanding
from tilert_connector.transport.base import Endpoint, Grant
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LandingThread
from tilert_connector.transport.pages import SlotPages
from tilert_connector.transport.socket_sink import SocketSink
from tilert_connector.transport.sockets import listen_here, same_user

__all__ = ["ShmSink"]


class ShmSink(SocketSink):
    """`slots`: of `layout.slot_bytes(capacity)` bytes each."""

    def __init__(
        self, layout: KvLayout, slots: Sequence[SlotPages], capacity: int, host: str = "", port: int = 0
    ) -> None:
        super().__init__(host, port)
        self._layout = layout
        self._slots = slots
        self._capacity = capacity

    def describe(self) -> Endpoint:
        return Endpoint(transport="shm", host="", port=self._port)

    def content(self, slot: int) -> bytes:
        return self._slots[slot].epoch

    def _listen(self) -> socket.socket:
        listener, self._port = listen_here(self._port)
        return listener

    def _welcome(self, sock: socket.socket) -> bool:
        return same_user(sock)

    def _land(self, sock: socket.socket, grant: Grant) -> LandingThread:
        pages = self._slots[grant.slot]
        landing = Landing(grant, self._layout, pages.array, self._capacity)
        epoch, descriptor = pages.share()
        place = Place(epoch=epoch, slot=grant.slot, size=pages.size, capacity=self._capacity)
        return AnnouncedLanding(sock, landing, pages, place, descriptor)
