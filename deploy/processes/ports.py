"""Free ports on the loopback interface."""

import socket
from contextlib import ExitStack

__all__ = ["free_ports"]


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on now; they are not reserved."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
