"""Time to the first token: through the router, and from the stubs called directly, one after the other.

Invariant: both sides of a pair are blocking sockets that stay connected; only what the router adds differs.
"""

import socket
import statistics
import time

from deploy.bench.router.client import post
from deploy.bench.router.stub import IDS, SHORT
from deploy.bench.router.wire import HEAD_END, LAST
from speedtier.errors import SpeedtierError

__all__ = ["added_ms"]

WARM = 20
MARKED = {"x_traffic_class": "speed"}


class _Line:
    """A connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def whole(self, request: bytes) -> None:
        """Ask and read a reply with a length."""
        self._socket.sendall(request)
        seen = b""
        while (end := seen.find(HEAD_END)) < 0:
            seen += self._read()
        length = int(seen[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        left = length - (len(seen) - end - len(HEAD_END))
        while left > 0:
            left -= len(self._read())

    def first_event(self, request: bytes) -> float:
        """Ask and read a stream; gives the time of its first event."""
        self._socket.sendall(request)
        seen = b""
        while b"data: " not in seen:
            seen += self._read()
        first = time.perf_counter()
        while not seen.endswith(LAST):
            seen += self._read()
        return first

    def _read(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise SpeedtierError("a server of the bench hung up")
        return data

    def close(self) -> None:
        self._socket.close()


def added_ms(router: int, prefill: int, requests: int, prompt: int) -> tuple[float, float, float]:
    """Milliseconds, medians: through the router, directly, and of the differences of pairs."""
    ask = {"model": "stub", "messages": [{"role": "user", "content": "word " * prompt}], "max_tokens": SHORT}
    through = post("/v1/chat/completions", {**ask, "stream": True}, **MARKED)
    ids = [IDS[i % len(IDS)] for i in range(prompt)]
    render = post("/v1/chat/completions/render", {**ask, "stream": True})
    generate = post("/inference/v1/generate", {"model": "stub", "token_ids": ids, "sampling_params": {"max_tokens": 1}})
    routed, direct = _Line(router), _Line(prefill)
    times: list[tuple[float, float]] = []
    try:
        for _ in range(requests + WARM):
            started = time.perf_counter()
            via = routed.first_event(through) - started
            started = time.perf_counter()
            direct.whole(render)
            direct.whole(generate)
            times.append((via, time.perf_counter() - started))
    finally:
        routed.close()
        direct.close()
    kept = times[WARM:]
    return (
        statistics.median(via for via, _ in kept) * 1e3,
        statistics.median(straight for _, straight in kept) * 1e3,
        statistics.median(via - straight for via, straight in kept) * 1e3,
    )
