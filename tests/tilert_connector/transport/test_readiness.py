"""Waiting for a socket through an epoll set: it must say what polling the socket says."""

import select
import socket
from collections.abc import Iterator

import pytest

from tilert_connector.transport.readiness import Readiness


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def ready(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


def test_it_is_readable_when_the_socket_is_as_watched(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    readiness = Readiness(ours)
    assert not ready(readiness.watch(read=True, write=False))
    assert ready(readiness.watch(read=True, write=True))
    assert not ready(readiness.watch(read=False, write=False))
    theirs.send(b"!")
    assert not ready(readiness.watch(read=False, write=False))
    assert ready(readiness.watch(read=True, write=False))
    ours.recv(1)
    assert not ready(readiness.watch(read=True, write=False))
    readiness.close()


def test_a_broken_connection_always_shows(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    readiness = Readiness(ours)
    theirs.close()
    assert ready(readiness.watch(read=False, write=False))
    readiness.close()


def test_waiting_ends_with_bytes_with_the_connection_and_with_the_sockets_own_time_out(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    readiness = Readiness(ours)
    ours.settimeout(0.01)
    readiness.wait()
    ours.settimeout(30)
    theirs.send(b"!")
    readiness.wait()
    assert ours.recv(8) == b"!"
    ours.shutdown(socket.SHUT_RDWR)
    readiness.wait()
    assert ours.recv(8) == b""
    readiness.close()
