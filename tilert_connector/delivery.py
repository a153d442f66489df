"""The bytes of one handoff, from the paged cache into one writer.

Invariants: the cache is read only with the handoff's gate held and in the round that was accepted; tokens
go out in order and without a gap, whole tiles first, so that only the end of a prompt is part of one.
"""

import itertools

from tilert_connector.exporter import Exporter
from tilert_connector.outgoing import Outgoing, Phase
from tilert_connector.protocol import Accepted, Welcome
from tilert_connector.transport.base import Carrier, Carriers, Endpoint, Writer
from tilert_connector.transport.frame import cut_frames

__all__ = ["Delivery"]


class Delivery:
    """Belongs to one lane. frame_bytes: largest frame."""

    def __init__(self, exporter: Exporter, carriers: Carriers, frame_bytes: int) -> None:
        self._exporter = exporter
        self._make = carriers
        self._carriers: dict[str, Carrier] = {}
        self._frame_bytes = frame_bytes

    def open(self, outgoing: Outgoing, accepted: Accepted, host: str, welcome: Welcome) -> None:
        """Begin to write under this acceptance, from token `outgoing.start` on. Raises WireError."""
        carrier = self._carriers.get(welcome.transport)
        if carrier is None:
            carrier = self._carriers[welcome.transport] = self._make(welcome.transport)
        endpoint = Endpoint(transport=welcome.transport, host=host, port=welcome.data_port)
        writer = carrier.open(endpoint, accepted.generation, accepted.key)
        with outgoing.gate:
            if outgoing.state:
                writer.close()
                return
            if outgoing.writer is not None:
                outgoing.writer.close()
            outgoing.writer = writer
            outgoing.generation = accepted.generation
            outgoing.posted = 0
            outgoing.course.begin(welcome.transport)
            outgoing.queued = [outgoing.start] * len(outgoing.queued)
            outgoing.frames.clear()
            outgoing.phase = Phase.WRITING

    def advance(self, outgoing: Outgoing) -> bool:
        """Move bytes for one call that does not block; True once, when everything is confirmed.

        Raises WireError.
        """
        with outgoing.gate:
            writer = outgoing.writer
            if writer is None or outgoing.state or outgoing.round != outgoing.offered_round:
                return False
            self._queue(outgoing)
            self._post(outgoing, writer)
            writer.progress()
            outgoing.course.confirmed(writer.completed())
            pending = min(outgoing.queued) < outgoing.tokens or outgoing.frames
            if pending or writer.completed() < outgoing.posted:
                return False
            writer.close()
            outgoing.writer = None
            outgoing.phase = Phase.DONE
            return True

    def close(self) -> None:
        """End every carrier; call it when no handoff is open."""
        for carrier in self._carriers.values():
            carrier.close()
        self._carriers.clear()

    def _queue(self, outgoing: Outgoing) -> None:
        """Cut what became available into frames; layers that have the same to send share them."""
        exporter, whole = self._exporter, outgoing.available
        if whole < outgoing.tokens:
            whole -= whole % exporter.tile
        layers = range(len(exporter.layers))
        parts = [(outgoing.queued[n], outgoing.tokens if n in outgoing.saved else whole) for n in layers]
        for (queued, ready), alike in itertools.groupby(layers, parts.__getitem__):
            if ready > queued:
                first, *more = alike
                last = more[-1] if more else first
                planes = exporter.planes_of(first, last + 1)
                outgoing.frames.extend(cut_frames(exporter.layout, planes, queued, ready, self._frame_bytes))
                outgoing.queued[first : last + 1] = [ready] * (last + 1 - first)

    def _post(self, outgoing: Outgoing, writer: Writer) -> None:
        while outgoing.frames and writer.room():
            frame = outgoing.frames.popleft()
            writer.write(frame, self._exporter.pieces(frame, outgoing.blocks))
            outgoing.posted += 1
            outgoing.course.posted(frame.size)
