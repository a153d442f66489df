"""Sockets of the data plane: how both ends listen, connect without waiting, and notice a peer that vanished.

Invariant: nothing here waits for a peer.
"""

import errno
import os
import socket
import struct

from speedtier.errors import ConfigError
from tilert_connector.errors import WireError

__all__ = ["begin_connect", "connected", "keep_alive", "listen", "listen_here", "same_user"]


BUFFER = 4 << 20
"""Asked of the kernel for what is in flight: a connection carries one grant, too short a life to find its own size."""


def _widen(sock: socket.socket) -> None:
    """Before it connects or listens, so that the window may be as wide."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel find a peer that vanished without a word within about half a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
        _widen(listener)  # connections take it over when they are accepted
        return listener
    except (OSError, OverflowError) as error:
        raise ConfigError(f"data_port: cannot listen on {host}:{port}: {error}") from error


def _name(port: int) -> str:
    """In Linux's abstract name space: no file to leave behind, and gone with the process."""
    return f"\0speedtier-data-{port}"


def listen_here(port: int) -> tuple[socket.socket, int]:
    """A listening socket for this host's processes alone, and its number; 0 takes a free one. Raises ConfigError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for number in (port,) if port else (1 + int.from_bytes(os.urandom(2)) % 65535 for _ in range(64)):
        try:
            sock.bind(_name(number))
            sock.listen(128)
            return sock, number
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                sock.close()
                raise ConfigError(f"data_port: cannot listen on local socket {number}: {error}") from error
    sock.close()
    raise ConfigError("data_port: no free local socket was found; name one")


def begin_connect(host: str, port: int, *, here: bool = False) -> socket.socket:
    """A socket that is connecting; `here`: to `listen_here`. Raises WireError if that cannot even be tried."""
    family = socket.AF_UNIX if here else socket.AF_INET6 if ":" in host else socket.AF_INET
    where = f"local socket {port} (is the decode node on this host?)" if here else f"{host}:{port}"
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if not here:
            _widen(sock)
        code = sock.connect_ex(_name(port) if here else (host, port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        if not here:
            keep_alive(sock)
        elif not same_user(sock):
            raise OSError(errno.EACCES, "another user listens there")
    except OSError as error:
        sock.close()
        raise WireError(f"cannot connect to {where}: {error}") from error
    return sock


def connected(sock: socket.socket) -> bool:
    """Whether a socket that was connecting is connected. Raises OSError if it failed."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    try:
        sock.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            return False
        raise
    return True


def same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end of a local socket runs as our user, or as root."""
    _, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user in (0, os.geteuid())
