"""Encryption and identity of the control plane: ZeroMQ's CURVE.

Invariant: with a key set, a decode node speaks to prefill nodes whose public key it was given and to nobody else, and a
prefill node only to the decode node whose public key it was given. Keys of the data plane travel on the control plane,
so nobody who has not been let in can write state. Files are pyzmq's certificates (`speedtier keys curve` makes them).
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio
from zmq.auth import load_certificate
from zmq.auth.asyncio import AsyncioAuthenticator

from speedtier.errors import ConfigError
from tilert_connector.errors import WireError
from tilert_connector.secret import check_private

__all__ = ["ClientCurve", "ServerCurve", "read_client", "read_server", "refused"]

logger = logging.getLogger(__name__)


class ServerCurve(msgspec.Struct, frozen=True):
    """A decode node's keys. clients: directory of the public keys of prefill nodes that are let in."""

    public: bytes
    secret: bytes
    clients: str

    def guard(self, context: zmq.asyncio.Context) -> AsyncioAuthenticator:
        """Let in whom `clients` names, on sockets of this context that `apply` was used on; `stop` it after them."""
        guard = AsyncioAuthenticator(context, log=logger)
        guard.start()
        guard.configure_curve("*", self.clients)
        return guard

    def apply(self, socket: "zmq.Socket[bytes] | zmq.asyncio.Socket") -> None:
        """Before it is bound."""
        socket.curve_server = True
        socket.curve_publickey = self.public
        socket.curve_secretkey = self.secret


class ClientCurve(msgspec.Struct, frozen=True):
    """A prefill node's keys. servers: public keys of decode nodes, by `host_port` or `host`; "" for all of them."""

    public: bytes
    secret: bytes
    servers: Mapping[str, bytes]

    def apply(self, socket: "zmq.Socket[bytes]", host: str, port: int) -> None:
        """Before it connects to the decode node that a claim calls (host, port). Raises WireError."""
        found = next((self.servers[name] for name in (f"{host}_{port}", host, "") if name in self.servers), None)
        if found is None:
            raise WireError(
                f"decode node {host}:{port}: curve_server has neither {host}_{port}.key nor {host}.key; put its public "
                "CURVE key there"
            )
        socket.curve_serverkey = found
        socket.curve_publickey = self.public
        socket.curve_secretkey = self.secret


def read_server(key_file: str, clients: str) -> ServerCurve | None:
    """A decode node's keys, or None without `key_file`. Raises ConfigError."""
    if not key_file:
        if clients:
            raise ConfigError(f"curve_clients: {clients} is of no use without curve_key_file")
        return None
    public, secret = _secret(key_file)
    if not clients or not any(Path(clients).glob("*.key")):
        raise ConfigError(f"curve_clients: {clients!r} is no directory with public keys (*.key) of prefill nodes")
    for file in Path(clients).glob("*.key"):
        _public("curve_clients", file)
    return ServerCurve(public, secret, clients)


def read_client(key_file: str, server: str) -> ClientCurve | None:
    """A prefill node's keys, or None without `key_file`. server: a decode node's public key, which then is that of
    all of them, or a directory of such. Raises ConfigError."""
    if not key_file:
        if server:
            raise ConfigError(f"curve_server: {server} is of no use without curve_key_file")
        return None
    public, secret = _secret(key_file)
    place = Path(server)
    if server and place.is_dir():
        servers = {file.name.removesuffix(".key"): _public("curve_server", file) for file in place.glob("*.key")}
    else:
        servers = {"": _public("curve_server", place)} if server else {}
    if not servers:
        raise ConfigError(
            f"curve_server: {server!r} is no public key (*.key) of a decode node, nor a directory of them"
        )
    return ClientCurve(public, secret, servers)


def refused(event: int, curve: ClientCurve | None) -> str:
    """What a failed handshake means; empty if `event` is another. event: of ZeroMQ's socket monitor."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "CURVE: it does not let this prefill node in; put the public key into its curve_clients and restart it"
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and curve is not None:
        return "CURVE: it does not use CURVE; set curve_key_file there, or unset it here"
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and curve is not None:
        return "CURVE: it ended the handshake; curve_server is not its public key, or it does not use CURVE"
    if event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
        return "it ended the handshake; it may want CURVE: set curve_key_file and curve_server"
    return ""


def _secret(key_file: str) -> tuple[bytes, bytes]:
    check_private("curve_key_file", key_file)
    if not zmq.has("curve"):
        raise ConfigError("curve_key_file: this pyzmq was built without CURVE; install a wheel of pyzmq")
    public, secret = _load("curve_key_file", Path(key_file))
    if secret is None:
        raise ConfigError(f"curve_key_file: {key_file} holds no secret key; it is the *.key_secret of the pair")
    return public, secret


def _public(field: str, file: Path) -> bytes:
    return _load(field, file)[0]


def _load(field: str, file: Path) -> tuple[bytes, bytes | None]:
    try:
        return load_certificate(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{field}: {file} is no CURVE certificate: {error}") from error
