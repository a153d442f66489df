"""The prefill node's half: moves one load by one way, and says how long it took until the other side had it all.

Invariant: what is timed is one load from its first byte to the word that every byte is in place; connecting is not.
"""

import contextlib
import ctypes
import multiprocessing
import select
import socket
import time
from types import TracebackType
from typing import Any, Self

import numpy as np

from deploy.bench.handoff.far import run
from deploy.bench.handoff.load import LAYOUT, TOKENS, Cache, Load, address
from speedtier.errors import SpeedtierError
from tilert_connector.transport import Carrier, Report, Writer, open_carriers

__all__ = ["Near"]

PIECES_PER_CALL = 512
LIMIT_S = 60.0


class Near:
    """Starts the far half; a context."""

    def __init__(self, transports: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=run, args=(far, transports), daemon=True)
        self._process.start()
        far.close()
        self.cache = Cache()
        self._target = np.ones(LAYOUT.slot_bytes(TOKENS), np.uint8)
        self._endpoints, self.missing, port = self._hear()
        self._plain = socket.create_connection(("127.0.0.1", port))
        self._plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        make = open_carriers(LAYOUT, [self.cache.memory])
        self._carriers: dict[str, Carrier] = {name: make(name) for name in self._endpoints}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for carrier in self._carriers.values():
            carrier.close()
        self._plain.close()
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def memcpy(self, load: Load) -> float:
        """Seconds to copy the load's pieces within this process, one call a piece."""
        parts = [(address(piece), len(piece)) for piece in self.cache.pieces(load)]
        there, move, started = self._target.ctypes.data, ctypes.memmove, time.perf_counter()
        for here, size in parts:
            move(there, here, size)
            there += size
        return time.perf_counter() - started

    def sockets(self, load: Load) -> float:
        """Seconds to send them over a loopback socket, gathered by the kernel, unchecked, until one byte came back."""
        queue = self.cache.pieces(load)
        started = time.perf_counter()
        self._plain.sendall(load.bytes.to_bytes(8))
        while queue:
            sent = self._plain.sendmsg(queue[:PIECES_PER_CALL])
            done = 0
            while done < len(queue) and sent >= len(queue[done]):
                sent -= len(queue[done])
                done += 1
            del queue[:done]
            if sent:
                queue[0] = queue[0][sent:]
        self._plain.recv(1)
        return time.perf_counter() - started

    def transport(self, name: str, load: Load) -> float:
        """Seconds by one of ours, until the last frame is confirmed."""
        frames = self.cache.frames(load)
        self._pipe.send((name, load.tokens))
        grant = self._hear()
        writer = self._carriers[name].open(self._endpoints[name], grant.generation, grant.key)
        with contextlib.closing(writer):
            while not writer.room():
                _wait(writer)
                writer.progress()
            started = time.perf_counter()
            queue = frames[::-1]
            while writer.completed() < len(frames):
                while queue and writer.room():
                    writer.write(*queue.pop())
                writer.progress()
                if not (queue and writer.room()):
                    _wait(writer)
            seconds = time.perf_counter() - started
        report = self._hear()
        if not isinstance(report, Report) or not report.landed:
            raise SpeedtierError(f"{name}: {report}")
        return seconds

    def _hear(self) -> Any:
        if not self._pipe.poll(LIMIT_S):
            raise SpeedtierError("the receiving process does not answer")
        return self._pipe.recv()


def _wait(writer: Writer) -> None:
    """As a lane does."""
    interest = writer.interest()
    if interest is None:
        time.sleep(0.0002)
        return
    number, read, write = interest
    poller = select.poll()
    poller.register(number, select.POLLIN * read | select.POLLOUT * write)
    poller.poll(500)
