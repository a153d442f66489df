"""The decode node's end over a transfer engine: registers slots under an address that can be made worthless.

Invariant: the engine is only ever told of `SlotPages.alias`, never of the address that the decode engine reads, so
that what it still carries after `SlotPages.renew` lands in memory that nobody reads.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence

from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.transport.announce import Place
from tilert_connector.transport.announced_landing import AnnouncedLanding
from tilert_connector.transport.base import Endpoint, Grant
from tilert_connector.transport.engine import Engine
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LandingThread
from tilert_connector.transport.pages import SlotPages
from tilert_connector.transport.socket_sink import SocketSink

__all__ = ["EngineSink"]

POLL_S = 0.0002


class EngineSink(SocketSink):
    """transport: its name. `slots`: of `layout.slot_bytes(capacity)` bytes each. Raises what `make` raises."""

    def __init__(
        self,
        transport: str,
        make: Callable[[], Engine],
        layout: KvLayout,
        slots: Sequence[SlotPages],
        capacity: int,
        host: str,
        port: int = 0,
    ) -> None:
        super().__init__(host, port)
        self._transport = transport
        self._engine = make()
        self.late = self._engine.patience_s > 0
        self._layout = layout
        self._slots = slots
        self._capacity = capacity
        self._lock = threading.Lock()
        self._registered: dict[int, tuple[bytes, int]] = {}  # slot -> (epoch, address)
        self._landing = 0
        self._wanted = threading.Event()
        self._closing = False
        self._poller: threading.Thread | None = None

    def describe(self) -> Endpoint:
        return Endpoint(transport=self._transport, host=self._host, port=self._port)

    async def start(self) -> None:
        await super().start()
        self._poller = threading.Thread(target=self._poll, name=f"poll-{self._transport}", daemon=True)
        self._poller.start()

    async def close(self) -> None:
        await super().close()
        self._closing = True
        self._wanted.set()
        if self._poller is not None:
            await asyncio.to_thread(self._poller.join)
            self._poller = None
            self._engine.close()

    def content(self, slot: int) -> bytes:
        return self._slots[slot].epoch

    def _land(self, sock: socket.socket, grant: Grant) -> LandingThread:
        pages = self._slots[grant.slot]
        landing = Landing(grant, self._layout, pages.array, self._capacity)
        with self._lock:
            epoch, address = self._register(grant.slot)
            peer = self._engine.name()
        place = Place(
            epoch=epoch, slot=grant.slot, size=pages.size, capacity=self._capacity, address=address, peer=peer
        )
        thread = AnnouncedLanding(sock, landing, pages, place, patience_s=self._engine.patience_s)
        self._landing += 1
        self._wanted.set()
        thread.ended.add_done_callback(lambda _: self._left())
        return thread

    def _register(self, slot: int) -> tuple[bytes, int]:
        """The slot's pages under the address that writers may know, registered; what they were before is not."""
        epoch, address = self._slots[slot].alias()
        known = self._registered.get(slot)
        if known is None or known[0] != epoch:
            if known is not None:
                self._engine.forget(known[1])
            self._engine.register(address, self._slots[slot].size)
            self._registered[slot] = epoch, address
        return epoch, address

    def _left(self) -> None:
        self._landing -= 1
        if not self._landing:
            self._wanted.clear()

    def _poll(self) -> None:
        """While anyone writes; without it nothing arrives over some of the engines' wires."""
        while self._wanted.wait() and not self._closing:
            with self._lock:
                self._engine.poll()
            time.sleep(POLL_S)
