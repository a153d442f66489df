"""What every sink with one connection per grant shares: listening, keys, reports and revocation.

Invariant: a connection is given to a grant only after it showed that grant's key, each grant takes one
connection in its life, and a grant is gone only when its thread has ended.
"""

import asyncio
import contextlib
import functools
import hmac
import logging
import socket
from collections.abc import Callable

from tilert_connector.errors import WireError
from tilert_connector.transport.base import Endpoint, Grant, Report
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC
from tilert_connector.transport.landing_thread import LandingThread
from tilert_connector.transport.sockets import keep_alive, listen

__all__ = ["ATTACH_S", "MAX_ATTACHING", "SocketSink"]

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


class SocketSink:
    """A transport says which thread lands, and, if its connections are not TCP, how to listen and who may connect."""

    late = False

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._admissions: dict[int, _Admission] = {}
        self._landed: dict[int, list[_Admission]] = {}  # slot -> what landed of the handoff that has it
        self._attaching: dict[asyncio.Task[bool], None] = {}  # oldest first
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def describe(self) -> Endpoint:
        raise NotImplementedError

    def _listen(self) -> socket.socket:
        """A listening socket, whose port is `_port` from then on. Raises ConfigError."""
        listener = listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        return listener

    def _welcome(self, sock: socket.socket) -> bool:
        """Whether this connection may try; sets its options."""
        keep_alive(sock)
        return True

    def _land(self, sock: socket.socket, grant: Grant) -> LandingThread:
        """The thread for a connection that showed this grant's key; not started."""
        raise NotImplementedError

    async def start(self) -> None:
        self._listener = self._listen()
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> None:
        timer = asyncio.get_running_loop().call_later(ATTACH_S, self._never_attached, grant.generation)
        self._admissions[grant.generation] = _Admission(grant, report, timer)
        if any(one.grant.handoff != grant.handoff for one in self._landed.get(grant.slot, ())):
            del self._landed[grant.slot]

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

    def content(self, slot: int) -> bytes:
        return b""

    async def close(self) -> None:
        for task in [*self._attaching, *([self._accepting] if self._accepting else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*(self.revoke(generation, ATTACH_S) for generation in list(self._admissions)))

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
            if not self._welcome(sock):
                return False
            async with asyncio.timeout(ATTACH_S):
                generation, key = await self._read_attach(sock)
            admission = self._admissions.get(generation)
            if admission is None or admission.thread is not None:
                return False
            if not hmac.compare_digest(admission.grant.key, key):
                return False
            sock.setblocking(True)
            thread = admission.thread = self._land(sock, admission.grant)
            admission.timer.cancel()
            thread.ended.add_done_callback(lambda _: self._reported(admission, thread))
            thread.start()
            return True
        except (OSError, TimeoutError, ValueError):
            return False
        except WireError as error:
            log.warning("data port: a writer cannot be let in: %s", error)
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
        grant = admission.grant
        known = self._admissions.pop(grant.generation, None) is not None
        if thread.lost_others:
            self._lose_others(grant)
        elif thread.report.landed:
            self._landed.setdefault(grant.slot, []).append(admission)
        if known and not thread.stopped:
            admission.report(thread.report)

    def _lose_others(self, grant: Grant) -> None:
        """The slot's memory was replaced: what other writers of the same handoff brought is gone with it."""
        reason = f"rank {grant.rank} did not stop writing, and the slot's memory was replaced to keep it out"
        for other in self._landed.pop(grant.slot, ()):
            report = Report(generation=other.grant.generation, landed=False, landed_bytes=0, reason=reason)
            other.report(report)
        for other in list(self._admissions.values()):
            if other.grant.slot == grant.slot and other.thread is not None and not other.thread.stopped:
                other.thread.stop()
                other.report(Report(generation=other.grant.generation, landed=False, landed_bytes=0, reason=reason))

    def _never_attached(self, generation: int) -> None:
        admission = self._admissions.pop(generation, None)
        if admission is not None:
            reason = f"the writer did not connect to the data port within {ATTACH_S:g} s"
            admission.report(Report(generation=generation, landed=False, landed_bytes=0, reason=reason))
