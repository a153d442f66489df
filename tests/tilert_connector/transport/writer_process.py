"""A writer in a process of its own, to be stopped, continued and killed."""

import contextlib
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilert_connector.errors import WireError
from tilert_connector.layout import KvLayout, mla_layout
from tilert_connector.transport import Endpoint, Frame, Grant, Writer, cut_frames, open_carriers

Source = NDArray[np.uint8]
LAYOUT: KvLayout = mla_layout([0, 1], 4, 448, 64)
"""Two planes of 2 KiB a token."""
TOKENS = 4096
FRAME = 1 << 20
STUBBORN = 200


def filled(value: int) -> Source:
    """A source of which every byte is `value`."""
    return np.full(LAYOUT.slot_bytes(TOKENS), value, np.uint8)


def pieces(source: Source, frame: Frame) -> list[memoryview]:
    flat, width = memoryview(source.data), LAYOUT.planes[0].token_bytes
    starts = LAYOUT.offsets(TOKENS)
    return [
        flat[starts[index] + frame.first * width : starts[index] + frame.last * width]
        for index in range(frame.plane_first, frame.plane_last)
    ]


def _write(pipe: Connection, transport: str, value: int) -> None:
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
    source = filled(value)
    carrier = open_carriers(LAYOUT, [source])(transport)
    pipe.send("ready")
    endpoint, grant = pipe.recv()
    writer = carrier.open(endpoint, grant.generation, grant.key)
    frames = list(cut_frames(LAYOUT, grant.planes, 0, grant.tokens, FRAME))[::-1]
    half = len(frames) // 2
    with contextlib.closing(writer):
        while writer.completed() < half:
            _some(writer, frames, source, half)
            time.sleep(0.0001)
        writer.write(frames[-1], pieces(source, frames.pop()))  # and nothing moves it yet
        pipe.send("half")
        pipe.recv()
        reason, left = "", STUBBORN
        while not reason or left:
            try:
                _some(writer, frames, source, 0)
            except WireError as error:
                reason = reason or str(error)
            left -= bool(reason)
            time.sleep(0.0001)
    carrier.close()
    pipe.send(reason)
    pipe.recv()


def _some(writer: Writer, frames: list[Frame], source: Source, keep: int) -> None:
    """Write on, also when told to stop: the other end must not depend on anyone's good will."""
    while len(frames) > keep and writer.room():
        frame = frames.pop()
        writer.write(frame, pieces(source, frame))
    writer.progress()


class WriterProcess:
    """Writes `value` into every byte that it is granted."""

    def __init__(self, transport: str, value: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self.process = context.Process(target=_write, args=(far, transport, value), daemon=True)
        self.process.start()
        far.close()

    def hear(self, within: float = 30.0) -> Any:
        assert self._pipe.poll(within), "the writer process says nothing"
        return self._pipe.recv()

    def go_on(self) -> None:
        """Behind the middle, where it waits."""
        self._pipe.send("go on")

    def go(self, endpoint: Endpoint, grant: Grant) -> None:
        self._pipe.send((endpoint, grant))

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._pipe.send("go home")
        self._pipe.close()
        self.signal(signal.SIGCONT) if self.process.is_alive() else None
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5)
        self.process.close()
