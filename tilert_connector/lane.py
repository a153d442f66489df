"""One thread per decode node: offers, writes while prefill goes on, and sees every handoff to its end.

Invariants: nothing here blocks on a peer, so that one dead decode node delays no other and no step of the
engine; every handoff given to the lane ends, at the latest by its deadline or with the lane.
"""

import contextlib
import logging
import socket
import threading
import time
from collections import deque

import zmq

from tilert_connector.chain import follow
from tilert_connector.config import ConnectorConfig
from tilert_connector.course import tell
from tilert_connector.curve import ClientCurve
from tilert_connector.delivery import Delivery
from tilert_connector.errors import MessageError, WireError
from tilert_connector.exporter import Exporter
from tilert_connector.layout.fingerprint import model_name
from tilert_connector.outgoing import Outgoing, Phase
from tilert_connector.protocol import (
    Accepted,
    Done,
    Ended,
    FromDecode,
    Hello,
    Offer,
    Refused,
    Withdraw,
)
from tilert_connector.session import Session, resolve
from tilert_connector.transport.base import Carriers

__all__ = ["Lane"]

logger = logging.getLogger(__name__)
TICK_S = 0.5
BUSY_S = 0.001


class Lane(threading.Thread):
    """Writes to the decode node at (host, port). `post`, `wake` and `stop` may be called from any thread."""

    def __init__(
        self,
        host: str,
        port: int,
        rank: int,
        hello: Hello,
        config: ConnectorConfig,
        exporter: Exporter,
        carriers: Carriers,
        curve: ClientCurve | None = None,
    ) -> None:
        super().__init__(name=f"lane-{host}:{port}", daemon=True)
        self._host, self._port, self._rank, self._hello = host, port, rank, hello
        self._config = config
        self._planes = exporter.planes
        self._model = model_name(hello.fingerprint)
        self._delivery = Delivery(exporter, carriers, config.frame_bytes)
        self._inbox: deque[Outgoing] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._stopping = False
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._active: dict[str, Outgoing] = {}
        self._curve = curve
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._session: Session | None = None
        self._ready: set[object] = set()
        self._quiet_since = time.monotonic()

    # From any thread

    @property
    def closed(self) -> bool:
        """Whether it takes no more handoffs."""
        return self._closed

    def post(self, outgoing: Outgoing) -> bool:
        """Take a handoff. False: the lane has closed, make another."""
        with self._lock:
            if self._closed:
                return False
            self._inbox.append(outgoing)
        self.wake()
        return True

    def wake(self) -> None:
        """Look at every handoff now."""
        with contextlib.suppress(OSError):  # a full bell rings already; a closed lane needs none
            self._bell.send(b"!")

    def stop(self) -> None:
        """Fail what is open and end the thread; does not wait."""
        self._stopping = True
        self.wake()

    # The thread

    def run(self) -> None:
        reason = "the prefill node is shutting down"
        try:
            while not self._stopping and not self._idle():
                self._turn()
        except Exception as error:  # a defect here must fail handoffs, not hold their blocks
            logger.exception("lane to %s:%s failed", self._host, self._port)
            reason = f"lane failed: {error!r}"
        finally:
            with self._lock:
                self._closed = True
            self._take_inbox()
            self._lose(reason, withdraw=True)
            self._delivery.close()
            self._ear.close()
            self._bell.close()
            self._context.term()

    def _idle(self) -> bool:
        if self._active:
            self._quiet_since = time.monotonic()
            return False
        with self._lock:
            over = not self._inbox and time.monotonic() - self._quiet_since > self._config.idle_s
            self._closed = self._closed or over
        return over

    def _turn(self) -> None:
        self._take_inbox()
        try:
            self._talk()
        except WireError as error:
            self._lose(str(error))
        for outgoing in list(self._active.values()):
            self._advance(outgoing)
        self._wait()

    def _take_inbox(self) -> None:
        with self._lock:
            while self._inbox:
                outgoing = self._inbox.popleft()
                twin = self._active.setdefault(outgoing.claim.handoff, outgoing)
                if twin is not outgoing:
                    self._tell_end(outgoing, "failed", f"request {twin.request} is handed off under the same id")

    def _talk(self) -> None:
        """Keep the control connection, and act on what came over it."""
        if self._session is None:
            if not self._active:
                return
            address = resolve(self._host, self._config.networks)
            curve, name = self._curve, self._host
            self._session = Session(self._context, address, self._port, self._hello, curve, name)
        if self._ready & {self._session.socket, self._session.monitor}:
            for message in self._session.receive():
                self._on_message(message)
        if self._session is None or self._session.welcome is not None:
            return
        if time.monotonic() - self._session.started > self._config.connect_s:
            raise WireError(f"decode node {self._host}:{self._port} did not answer within {self._config.connect_s:g} s")

    def _on_message(self, message: FromDecode) -> None:
        match message:
            case Accepted():
                self._on_accepted(message)
            case Refused(handoff="") | Refused(code="hello"):
                self._lose(f"refused by the decode node: {message.reason}", withdraw=True)
            case Refused():
                outgoing = self._active.get(message.handoff)
                if outgoing is not None:
                    self._fail(outgoing, f"refused by the decode node: {message.reason}")
            case Ended():
                outgoing = self._active.get(message.handoff)
                if outgoing is not None:
                    self._end(outgoing, message.state, message.reason)

    def _on_accepted(self, accepted: Accepted) -> None:
        outgoing = self._active.get(accepted.handoff)
        if outgoing is None or self._session is None or self._session.welcome is None:
            return
        if outgoing.phase is not Phase.OFFERED or accepted.round != outgoing.offered_round:
            return
        try:
            outgoing.start = _start(outgoing, accepted)
            if outgoing.start == outgoing.tokens:
                outgoing.generation = accepted.generation
                self._done(self._session, outgoing)
                return
            self._delivery.open(outgoing, accepted, self._session.host, self._session.welcome)
        except WireError as error:
            self._fail(outgoing, str(error))

    # One handoff

    def _advance(self, outgoing: Outgoing) -> None:
        now = time.monotonic()
        if outgoing.state:
            self._active.pop(outgoing.claim.handoff, None)
        elif outgoing.aborted:
            self._withdraw(outgoing, outgoing.aborted)
            self._end(outgoing, "cancelled", outgoing.aborted)
        elif now > outgoing.deadline or (outgoing.phase is Phase.OFFERED and now > outgoing.phase_deadline):
            self._fail(outgoing, f"deadline passed while {outgoing.phase.value}")
        elif self._session is None or self._session.welcome is None:
            return
        elif outgoing.phase is Phase.DONE:
            return  # all is there: the blocks are not needed any more
        elif outgoing.round != outgoing.offered_round:
            self._offer(self._session, outgoing, now)
        elif outgoing.phase is Phase.WRITING:
            self._write(self._session, outgoing)

    def _offer(self, session: Session, outgoing: Outgoing, now: float) -> None:
        """First offer, or a new round after the source blocks were taken away."""
        with outgoing.gate:
            if outgoing.writer is not None:  # of the round before: at once, so that the decode node need not force it
                outgoing.writer.close()
                outgoing.writer = None
        outgoing.offered_round = outgoing.round
        outgoing.phase = Phase.OFFERED
        outgoing.phase_deadline = now + self._config.offer_s
        prefix = outgoing.prefix(self._model)
        offer = Offer(
            handoff=outgoing.claim.handoff,
            rank=self._rank,
            round=outgoing.offered_round,
            tokens=outgoing.tokens,
            planes=self._planes,
            chain=prefix.chain if prefix else b"",
            rest=prefix.ids if prefix else (),
            ticket=outgoing.claim.ticket,
        )
        try:
            session.send(offer)
        except (WireError, MessageError) as error:
            self._end(outgoing, "failed", str(error))

    def _write(self, session: Session, outgoing: Outgoing) -> None:
        try:
            if self._delivery.advance(outgoing):
                self._done(session, outgoing)
        except WireError as error:
            self._fail(outgoing, str(error))

    def _done(self, session: Session, outgoing: Outgoing) -> None:
        outgoing.phase = Phase.DONE
        handoff, generation, start = outgoing.claim.handoff, outgoing.generation, outgoing.start
        session.send(Done(handoff=handoff, rank=self._rank, generation=generation, start=start))

    def _fail(self, outgoing: Outgoing, reason: str) -> None:
        self._withdraw(outgoing, reason)
        self._end(outgoing, "failed", reason)

    def _withdraw(self, outgoing: Outgoing, reason: str) -> None:
        if self._session is not None:
            message = Withdraw(handoff=outgoing.claim.handoff, rank=self._rank, reason=reason[:2048])
            with contextlib.suppress(WireError):  # the decode node's own timers end it
                self._session.send(message)

    def _end(self, outgoing: Outgoing, state: str, reason: str) -> None:
        self._active.pop(outgoing.claim.handoff, None)
        self._tell_end(outgoing, state, reason)

    def _tell_end(self, outgoing: Outgoing, state: str, reason: str) -> None:
        if outgoing.end(state, reason) and outgoing.record is not None:
            tell(logger, outgoing.record)

    def _lose(self, reason: str, withdraw: bool = False) -> None:
        """The session is over, and all that hung on it."""
        for outgoing in list(self._active.values()):
            # What was to end anyway says its own reason, whichever came first.
            why = outgoing.aborted or reason
            if withdraw:
                self._withdraw(outgoing, why)
            self._end(outgoing, "cancelled" if outgoing.aborted else "failed", why)
        if self._session is not None:
            self._session.close()
            self._session = None

    def _wait(self) -> None:
        """Until a socket has something for us, the engine rings, or a deadline may have passed."""
        poller, timeout = zmq.Poller(), TICK_S
        poller.register(self._ear.fileno(), zmq.POLLIN)
        if self._session is not None:
            poller.register(self._session.socket, zmq.POLLIN)
            poller.register(self._session.monitor, zmq.POLLIN)
        for outgoing in self._active.values():
            if outgoing.phase is not Phase.WRITING or outgoing.writer is None:
                continue
            if outgoing.frames and outgoing.writer.room():
                timeout = 0.0
            interest = outgoing.writer.interest()
            if interest is None:
                timeout = min(timeout, BUSY_S)
                continue
            number, read, write = interest
            poller.register(number, zmq.POLLIN * read | zmq.POLLOUT * write)
        # What was not polled ready is not asked: each call gives up the interpreter, which the engine wants too.
        self._ready = {which for which, _ in poller.poll(int(timeout * 1000))}
        if self._ear.fileno() in self._ready:
            with contextlib.suppress(BlockingIOError):
                while len(self._ear.recv(4096)) == 4096:
                    pass


def _start(outgoing: Outgoing, accepted: Accepted) -> int:
    """The first token that the decode node does not hold. Raises WireError if it claims what it cannot hold."""
    if accepted.held > len(outgoing.prompt):
        held, known = accepted.held, len(outgoing.prompt)
        raise WireError(f"decode node says it holds {held} leading tokens of a prompt that was told as {known}")
    return follow(outgoing.prompt, accepted.held, accepted.tail)
