"""The decode node's control socket: bytes to checked messages and back.

Invariant: a frame that is no message of ours is answered with a refusal, counted, and changes nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from speedtier.errors import ConfigError
from tilert_connector.curve import ServerCurve
from tilert_connector.errors import MessageError
from tilert_connector.protocol import (
    MAX_MESSAGE_BYTES,
    FromDecode,
    FromPrefill,
    Refused,
    decode_from_prefill,
    encode,
)

__all__ = ["ControlSocket", "tcp_address"]

logger = logging.getLogger(__name__)
HEARTBEAT_MS = 5000
HEARTBEAT_TIMEOUT_MS = 30000
"""A peer that dies closes its connection at once; this finds silent networks, and must outlast a machine so
busy that ZeroMQ's own threads wait for seconds (seen: 6 s were not enough)."""


def tcp_address(host: str, port: int | str) -> str:
    """ZeroMQ's spelling of a host and port, with IPv6 in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class ControlSocket:
    """A ZeroMQ ROUTER; `on_message(peer, message)` is called on the loop for each message."""

    def __init__(
        self,
        host: str,
        port: int,
        on_message: Callable[[bytes, FromPrefill], None],
        curve: ServerCurve | None = None,
    ) -> None:
        self.port = port
        self.malformed = 0
        self._host = host
        self._on_message = on_message
        self._curve = curve
        self._guard: AsyncioAuthenticator | None = None
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Bind. Raises ConfigError."""
        self._context = zmq.asyncio.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if self._curve is not None:
            self._guard = self._curve.guard(self._context)
            self._curve.apply(self._socket)
        if ":" in self._host:
            self._socket.setsockopt(zmq.IPV6, 1)
        try:
            self._socket.bind(tcp_address(self._host, self.port or "*"))
        except zmq.ZMQError as error:
            self._socket.close()
            self._stop_guard()
            self._context.term()
            self._socket = None
            raise ConfigError(f"ctrl_port: cannot listen on {self._host}:{self.port}: {error}") from error
        endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = int(endpoint.rstrip("\0").rpartition(":")[2])
        self._reading = asyncio.create_task(self._read(self._socket))

    def take(self, parts: Sequence[bytes]) -> None:
        """Act on one message: the peer's routing id and its frames."""
        try:
            if len(parts) != 2:
                raise MessageError(f"message of {len(parts) - 1} frames, expected 1")
            message = decode_from_prefill(parts[1])
        except MessageError as error:
            self.malformed += 1
            self.send(parts[0], Refused(code="malformed", reason=str(error)[:2048]))
            return
        self._on_message(parts[0], message)

    def send(self, peer: bytes, message: FromDecode) -> None:
        """Hand one message to ZeroMQ; a peer that is gone does not get it."""
        if self._socket is not None and not self._socket.closed:
            sent = asyncio.ensure_future(self._socket.send_multipart([peer, encode(message)]))
            sent.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def close(self) -> None:
        """Stop reading and release the port; what was sent just now still has a moment to leave."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if self._socket is not None:
            self._socket.close(linger=200)
            self._socket = None
        self._stop_guard()
        if self._context is not None:
            await asyncio.to_thread(self._context.term)

    def _stop_guard(self) -> None:
        if self._guard is not None:
            self._guard.stop()
            self._guard = None

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            parts = await socket.recv_multipart()
            try:
                self.take(parts)
            except Exception:  # a defect that one message meets must not make the node deaf to all others
                logger.exception("a control message could not be dealt with")
