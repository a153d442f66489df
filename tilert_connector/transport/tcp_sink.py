"""TCP, decode node's end: one connection and one landing thread per grant, received in place.

Invariant: a connection is read by a thread only after it showed the key of a live grant, each grant takes
one connection in its life, and a grant is gone only when its thread has ended.
"""

import asyncio
import contextlib
import functools
import hmac
import logging
import socket
from collections.abc import Callable, Sequence

import numpy as np

from speedtier.errors import ConfigError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.transport.base import Endpoint, Grant, Report
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC
from tilert_connector.transport.landing import Landing
from tilert_connector.transport.tcp_landing import LandingThread
from tilert_connector.transport.tcp_writer import keep_alive

__all__ = ["TcpSink"]

log = logging.getLogger("speedtier.receiver")
MAX_ATTACHING = 64
"""Connections that have not shown a key yet. One more closes the oldest of them: a writer shows its key at once, so
that one is a probe or a leak, and must not keep a writer out."""
ATTACH_S = 30.0


class _Admission:
    """A grant, who waits for its report, and its thread once a writer attached."""

    def __init__(self, grant: Grant, report: Callable[[Report], None], timer: asyncio.TimerHandle) -> None:
        self.grant = grant
        self.report = report
        self.timer = timer
        self.thread: LandingThread | None = None


class TcpSink:
    """`slots`: writable memory of `layout.slot_bytes(capacity)` bytes each."""

    def __init__(self, layout: KvLayout, slots: Sequence[memoryview], capacity: int, host: str, port: int = 0) -> None:
        self._layout = layout
        self._memories = [np.frombuffer(slot, np.uint8) for slot in slots]
        self._capacity = capacity
        self._host = host
        self._port = port
        self._admissions: dict[int, _Admission] = {}
        self._attaching: dict[asyncio.Task[bool], None] = {}  # oldest first
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._listener = socket.create_server((self._host, self._port), family=family, backlog=128)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"data_port: cannot listen on {self._host}:{self._port}: {error}") from error
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(self._listener))

    def describe(self) -> Endpoint:
        return Endpoint(transport="tcp", host=self._host, port=self._port)

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> bytes:
        timer = asyncio.get_running_loop().call_later(ATTACH_S, self._never_attached, grant.generation)
        self._admissions[grant.generation] = _Admission(grant, report, timer)
        return b""

    async def revoke(self, generation: int, timeout_s: float) -> bool:
        admission = self._admissions.get(generation)
        if admission is None:
            return True
        admission.timer.cancel()
        if admission.thread is not None:
            admission.thread.stop()
            try:
                await asyncio.wait_for(asyncio.shield(admission.thread.ended), timeout_s)
            except TimeoutError:
                return False
        self._admissions.pop(generation, None)
        return True

    async def close(self) -> None:
        for task in [*self._attaching, *([self._accepting] if self._accepting else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._listener is not None:
            self._listener.close()
        for generation in list(self._admissions):
            await self.revoke(generation, ATTACH_S)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:
                # Out of file descriptors, most likely: the listener stays, wait for some to come back.
                await asyncio.sleep(0.1)
                continue
            if len(self._attaching) >= MAX_ATTACHING:
                oldest = next(iter(self._attaching))
                del self._attaching[oldest]
                oldest.cancel()
                log.warning("data port: %d silent connections, the oldest is closed", MAX_ATTACHING)
            task = asyncio.create_task(self._attach(sock))
            self._attaching[task] = None
            task.add_done_callback(functools.partial(self._attach_ended, sock))

    def _attach_ended(self, sock: socket.socket, task: asyncio.Task[bool]) -> None:
        """Close what no grant took, also when its task was cancelled before it ran."""
        self._attaching.pop(task, None)
        if task.cancelled() or not task.result():
            sock.close()

    async def _attach(self, sock: socket.socket) -> bool:
        """Give the connection to the grant whose key it shows; whether one took it."""
        try:
            async with asyncio.timeout(ATTACH_S):
                generation, key = await self._read_attach(sock)
            admission = self._admissions.get(generation)
            if admission is None or admission.thread is not None:
                return False
            if not hmac.compare_digest(admission.grant.key, key):
                return False
            admission.timer.cancel()
            keep_alive(sock)
            sock.setblocking(True)
            landing = Landing(admission.grant, self._layout, self._memories[admission.grant.slot], self._capacity)
            thread = LandingThread(sock, landing)
            admission.thread = thread
            thread.ended.add_done_callback(lambda _: self._reported(admission, thread))
            thread.start()
            return True
        except (OSError, TimeoutError, ValueError):
            return False

    async def _read_attach(self, sock: socket.socket) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        data = b""
        while len(data) < ATTACH.size:
            more = await loop.sock_recv(sock, ATTACH.size - len(data))
            if not more:
                raise ConnectionResetError("closed before it attached")
            data += more
        magic, generation, key = ATTACH.unpack(data)
        if magic != ATTACH_MAGIC:
            raise ValueError(f"attach starts with {magic!r}")
        return generation, key

    def _reported(self, admission: _Admission, thread: LandingThread) -> None:
        if self._admissions.pop(admission.grant.generation, None) is not None and not thread.stopped:
            admission.report(thread.report)

    def _never_attached(self, generation: int) -> None:
        admission = self._admissions.pop(generation, None)
        if admission is not None:
            reason = f"the writer did not connect to the data port within {ATTACH_S:g} s"
            admission.report(Report(generation=generation, landed=False, landed_bytes=0, reason=reason))
