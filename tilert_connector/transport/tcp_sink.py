"""TCP, decode node's end: one connection and one landing thread per grant, received in place."""

import socket
from collections.abc import Sequence

import numpy as np

from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.transport.base import Endpoint, Grant
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.landing_thread import LandingThread
from tilert_connector.transport.socket_sink import SocketSink
from tilert_connector.transport.tcp_landing import TcpLanding

__all__ = ["TcpSink"]


class TcpSink(SocketSink):
    """`slots`: writable memory of `layout.slot_bytes(capacity)` bytes each."""

    def __init__(self, layout: KvLayout, slots: Sequence[memoryview], capacity: int, host: str, port: int = 0) -> None:
        super().__init__(host, port)
        self._layout = layout
        self._memories = [np.frombuffer(slot, np.uint8) for slot in slots]
        self._capacity = capacity

    def describe(self) -> Endpoint:
        return Endpoint(transport="tcp", host=self._host, port=self._port)

    def _land(self, sock: socket.socket, grant: Grant) -> LandingThread:
        return TcpLanding(sock, Landing(grant, self._layout, self._memories[grant.slot], self._capacity))
