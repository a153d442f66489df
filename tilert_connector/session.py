"""A lane's control connection to one decode node, for one life of that connection.

Invariant: a connection that was refused, lost or left unanswered says so once, as SessionLost, within its
deadline; a session that was lost is not used again, so a decode node that restarted is greeted anew.
"""

import ipaddress
import socket
import time
from collections.abc import Sequence

import zmq
from zmq.utils.monitor import recv_monitor_message

from tilert_connector.control import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS, tcp_address
from tilert_connector.curve import ClientCurve, refused
from tilert_connector.errors import MessageError, WireError
from tilert_connector.protocol import (
    MAX_MESSAGE_BYTES,
    FromDecode,
    FromPrefill,
    Hello,
    Welcome,
    decode_from_decode,
    encode,
)

__all__ = ["Session", "resolve"]

CANNOT = zmq.EVENT_CONNECT_RETRIED
LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
GOODBYE_MS = 200
"""How long closing waits for the last messages to leave."""


def resolve(host: str, networks: Sequence[str]) -> str:
    """The first address of `host` that lies in one of the networks. Raises WireError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise WireError(f"tilert_host: cannot resolve {host!r}: {error}") from error
    allowed = [ipaddress.ip_network(network) for network in networks]
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if any(ipaddress.ip_address(address) in network for network in allowed):
            return address
    raise WireError(
        f"tilert_host: {host!r} is {', '.join(addresses)}, outside the networks that this prefill node "
        f"may write to ({', '.join(networks)}); set `networks` in kv_connector_extra_config"
    )


class Session:
    """Connects at once and sends the hello. All methods belong to the lane's thread; none blocks.

    host: an address. name: the host as the claim has it, by which `curve` finds the decode node's key.
    Raises WireError.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        host: str,
        port: int,
        hello: Hello,
        curve: ClientCurve | None = None,
        name: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self._curve = curve
        self.welcome: Welcome | None = None
        self.started = time.monotonic()
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = GOODBYE_MS
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if curve is not None:
            try:
                curve.apply(self.socket, name or host, port)
            except WireError:
                self.socket.close(linger=0)
                raise
        if ":" in host:
            self.socket.setsockopt(zmq.IPV6, 1)
        self.monitor = self.socket.get_monitor_socket(CANNOT | LOST)
        self.socket.connect(tcp_address(host, port))
        self.send(hello)

    def send(self, message: FromPrefill) -> None:
        """Hand one message over. Raises WireError if the connection takes none."""
        try:
            self.socket.send(encode(message), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise WireError(f"decode node {self.host}:{self.port} takes no messages: {error}") from error

    def receive(self) -> list[FromDecode]:
        """What has come. Raises WireError when the connection is of no more use."""
        messages: list[FromDecode] = []
        while self.socket.poll(0):
            try:
                message = decode_from_decode(self.socket.recv(zmq.NOBLOCK))
            except MessageError as error:
                raise WireError(f"decode node {self.host}:{self.port}: {error}") from error
            if isinstance(message, Welcome):
                self.welcome = message
            messages.append(message)
        if not messages:
            self._check()
        return messages

    def close(self) -> None:
        """Leave; the last messages have GOODBYE_MS to go."""
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()

    def _check(self) -> None:
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            if why := refused(event, self._curve):
                raise WireError(f"decode node {self.host}:{self.port}: {why}")
            if event & LOST:
                raise WireError(f"decode node {self.host}:{self.port}: control connection lost")
            raise WireError(f"decode node {self.host}:{self.port} is unreachable")
