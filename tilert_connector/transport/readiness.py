"""Waits for a socket without being put on the processor of whoever writes to it.

The kernel takes it that who writes to a socket is about to sleep, and wakes the thread that waits for it on the same
processor. Here both ends go on: one copies the next frame while the other checks this one. The woken one then starves
for a slice of the scheduler, a millisecond and more, beside an idle processor. A thread that polls an epoll set which
has the socket is woken without that hint. Linux only.

Invariant: it says what polling the socket would say.
"""

import select
import socket

__all__ = ["Readiness"]


class Readiness:
    """Of one socket, which it does not own; to be closed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._set = select.epoll()
        self._events = select.EPOLLIN
        self._set.register(sock, self._events)
        self._poller = select.poll()
        self._poller.register(self._set, select.POLLIN)

    def watch(self, read: bool, write: bool) -> int:
        """A descriptor to poll for reading: it is readable when the socket is readable, or writable, or broken."""
        events = select.EPOLLIN * read | select.EPOLLOUT * write
        if events != self._events:
            self._set.modify(self._sock, events)
            self._events = events
        return self._set.fileno()

    def wait(self) -> None:
        """Until the socket is as watched, at first readable, or its own time-out is over."""
        timeout_s = self._sock.gettimeout()
        self._poller.poll(None if timeout_s is None else timeout_s * 1000)

    def close(self) -> None:
        """Before the socket."""
        self._set.close()
