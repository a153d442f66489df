"""Worker side: takes each step of the scheduler, and knows when a request's blocks may go.

Invariants: no call waits for a peer; a delayed request is reported exactly once, when its handoff has
ended or its deadline has passed, and no other request ever is.
"""

import logging
import secrets
import time

from tilert_connector.config import ConnectorConfig
from tilert_connector.course import Record, tell
from tilert_connector.curve import read_client
from tilert_connector.exporter import Exporter
from tilert_connector.lane import Lane
from tilert_connector.layout.fingerprint import Fingerprint
from tilert_connector.outgoing import Outgoing
from tilert_connector.protocol import Hello
from tilert_connector.tracker import Finish, Opening, Step
from tilert_connector.transport.base import Carriers

__all__ = ["Sender"]

logger = logging.getLogger(__name__)


class Sender:
    """Called on the engine's thread only. rank: of this worker; it brings `exporter.planes` (maybe none).
    refusal: why nothing at all can be handed off, if so."""

    def __init__(
        self,
        config: ConnectorConfig,
        rank: int,
        fingerprint: Fingerprint,
        exporter: Exporter,
        carriers: Carriers,
        refusal: str = "",
    ) -> None:
        self._config = config
        self._refusal = refusal
        self.rank = rank
        self._hello = Hello(instance=secrets.token_hex(8), fingerprint=fingerprint)
        self._exporter = exporter
        self._carriers = carriers
        self._curve = read_client(config.curve_key_file, config.curve_server)
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._outgoing: dict[str, Outgoing] = {}
        self._last_chunks: list[Outgoing] = []
        self._finishing: dict[str, Outgoing | None] = {}
        self._untold: list[Outgoing] = []

    def begin(self, step: Step) -> None:
        """Before the step runs: nothing reads preempted blocks once this returns, and offers go out so that
        the decode node answers while prefill computes."""
        for request in step.preempted:
            outgoing = self._outgoing.get(request)
            if outgoing is not None:
                outgoing.revoke()
                self._wake(outgoing)
        for opening in step.openings:
            self._open(opening)
        self._last_chunks.clear()
        for chunk in step.chunks:
            outgoing = self._outgoing.get(chunk.request)
            if outgoing is not None:
                outgoing.extend(chunk.blocks, chunk.restart)
                if chunk.available == outgoing.tokens:
                    self._last_chunks.append(outgoing)

    def save(self, layer: int) -> None:
        """While the step runs: this layer's state is there. Of a last chunk it leaves at once; earlier chunks leave
        while the next is computed. layer: counted in the order of `Exporter.layers`."""
        for outgoing in self._last_chunks:
            outgoing.saved.add(layer)
            self._wake(outgoing)

    def advance(self, step: Step) -> None:
        """After the step ran: its chunks may be read."""
        self._last_chunks.clear()
        for chunk in step.chunks:
            outgoing = self._outgoing.get(chunk.request)
            if outgoing is not None:
                outgoing.fill(chunk.available)
                self._wake(outgoing)
        for finish in step.finished:
            self._finish(finish)

    def take_finished(self) -> set[str]:
        """Delayed requests whose handoff has ended since the last call."""
        now, ended = time.monotonic(), set()
        for request, outgoing in self._finishing.items():
            # The lane keeps the deadline; the second one here holds even if that thread is lost.
            if outgoing is not None and now > outgoing.deadline + self._config.connect_s:
                self._fail(outgoing, "deadline passed and the lane did not notice")
            if outgoing is None or outgoing.state:
                ended.add(request)
        for request in ended:
            del self._finishing[request]
        return ended

    def take_records(self) -> list[Record]:
        """Of the handoffs that have ended since the last call."""
        if not self._untold:
            return []
        records = [(outgoing, outgoing.record) for outgoing in self._untold]
        self._untold = [outgoing for outgoing, record in records if record is None]
        return [record for _, record in records if record is not None]

    def close(self) -> None:
        """Fail what is open and end every lane, within a few seconds."""
        for lane in self._lanes.values():
            lane.stop()
        for lane in self._lanes.values():
            lane.join(timeout=2.0)
        self._lanes.clear()

    def _open(self, opening: Opening) -> None:
        if not (self._exporter.planes or self._refusal):
            return
        deadline = time.monotonic() + self._config.handoff_s
        outgoing = Outgoing(opening, deadline, len(self._exporter.layers))
        self._outgoing[opening.request] = outgoing
        self._untold.append(outgoing)
        outgoing.aborted = outgoing.aborted or self._refusal
        try:
            while not self._lane(outgoing).post(outgoing):
                continue  # that lane closed just now; the next one is new
        except RuntimeError as error:
            self._fail(outgoing, str(error))

    def _lane(self, outgoing: Outgoing) -> Lane:
        """The live lane to the claim's decode node. Raises RuntimeError if there can be none."""
        key = outgoing.claim.host, outgoing.claim.ctrl_port
        self._lanes = {k: lane for k, lane in self._lanes.items() if not lane.closed}
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= self._config.max_lanes:
                raise RuntimeError(f"max_lanes: {self._config.max_lanes} decode nodes are written to already")
            lane = Lane(*key, self.rank, self._hello, self._config, self._exporter, self._carriers, self._curve)
            lane.start()
            self._lanes[key] = lane
        return lane

    def _finish(self, finish: Finish) -> None:
        outgoing = self._outgoing.pop(finish.request, None)
        if finish.delayed:
            self._finishing[finish.request] = outgoing
        if outgoing is None:
            return
        outgoing.deadline = min(outgoing.deadline, time.monotonic() + self._config.hold_s)
        if not finish.completed and not outgoing.aborted:
            outgoing.aborted = "the request was aborted on the prefill node"
        self._wake(outgoing)

    def _fail(self, outgoing: Outgoing, reason: str) -> None:
        if outgoing.end("failed", reason) and outgoing.record is not None:
            tell(logger, outgoing.record)

    def _wake(self, outgoing: Outgoing) -> None:
        lane = self._lanes.get((outgoing.claim.host, outgoing.claim.ctrl_port))
        if lane is not None:
            lane.wake()
