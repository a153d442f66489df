"""Moves a known pattern through a real sink with a real carrier, before anyone relies on them.

Invariant: a transport that damages, misplaces or loses bytes does not pass; the pattern differs in every word.
"""

import asyncio
import contextlib
import logging
import secrets
import time

import msgspec
import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes, plane_views
from tilert_connector.transport.base import Carrier, Endpoint, Grant, Report, Sink
from tilert_connector.transport.frame import Frame, cut_frames

__all__ = ["SELF_TEST_GENERATION", "Measured", "Pattern", "pattern_tokens", "self_test", "write_pattern"]

log = logging.getLogger("speedtier.receiver")
SELF_TEST_GENERATION = 2**62
"""No handoff ever gets this one: generations count from 1."""
FRAME_BYTES = 2 << 20
MOST_BYTES = 64 << 20
PAUSE_S = 0.0002


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Which transport it really was, how many bytes went, and how fast (from the first frame to the last ack)."""

    transport: str
    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / max(self.seconds, 1e-9)


class Pattern:
    """`tokens` tokens of every plane, in one contiguous memory that a carrier can be told of (`source`)."""

    def __init__(self, layout: KvLayout, tokens: int) -> None:
        self.layout = layout
        self.tokens = tokens
        self.source: Bytes = np.zeros(layout.slot_bytes(tokens), np.uint8)
        words = np.arange(self.source.size // 8, dtype=np.uint64)
        self.source.view(np.uint64)[:] = words * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
        self._offsets = layout.offsets(tokens)

    def pieces(self, frame: Frame) -> list[memoryview]:
        """The frame's bytes, in wire order."""
        return [
            memoryview(np.ascontiguousarray(view).reshape(-1).data)
            for index in range(frame.plane_first, frame.plane_last)
            for view in plane_views(
                self.source[self._offsets[index] :], self.layout.planes[index], frame.first, frame.last
            )
        ]

    def arrived(self, memory: Bytes, capacity: int) -> bool:
        """Whether a slot with room for `capacity` tokens holds the pattern."""
        for plane, ours, theirs in zip(self.layout.planes, self._offsets, self.layout.offsets(capacity), strict=True):
            pairs = zip(
                plane_views(self.source[ours:], plane, 0, self.tokens),
                plane_views(memory[theirs:], plane, 0, self.tokens),
                strict=True,
            )
            if not all(np.array_equal(one, other) for one, other in pairs):
                return False
        return True


def write_pattern(carrier: Carrier, endpoint: Endpoint, grant: Grant, pattern: Pattern, deadline: float) -> Measured:
    """Write the pattern under an admitted grant of as many tokens, and wait until all is confirmed. Blocks until
    time.monotonic() is `deadline` at the latest. Raises WireError."""
    writer = carrier.open(endpoint, grant.generation, grant.key)
    started, frames = 0.0, list(cut_frames(pattern.layout, grant.planes, 0, grant.tokens, FRAME_BYTES))
    total, queue = len(frames), list(reversed(frames))
    with contextlib.closing(writer):
        while writer.completed() < total:
            while queue and writer.room():
                started = started or time.perf_counter()
                frame = queue.pop()
                writer.write(frame, pattern.pieces(frame))
            writer.progress()
            if time.monotonic() > deadline:
                raise WireError(f"{writer.completed()} of {total} frames were confirmed in time")
            if not queue or not writer.room():
                time.sleep(PAUSE_S)
    seconds = time.perf_counter() - started
    return Measured(transport=endpoint.transport, bytes=sum(frame.size for frame in frames), seconds=seconds)


async def self_test(
    sink: Sink, carrier: Carrier, slot: Bytes, capacity: int, pattern: Pattern, timeout_s: float = 20.0
) -> Measured:
    """Write the pattern into slot 0 (`slot`: its memory) of a started sink that has no grant yet, look whether it is
    there, wipe it, and log the rate. Raises WireError with the reason."""
    endpoint, reports = sink.describe(), asyncio.Queue[Report]()
    grant = Grant(
        handoff="self-test",
        rank=0,
        generation=SELF_TEST_GENERATION,
        key=secrets.token_bytes(16),
        slot=0,
        tokens=pattern.tokens,
        planes=((0, len(pattern.layout.planes)),),
    )
    sink.admit(grant, reports.put_nowait)
    deadline = time.monotonic() + timeout_s
    try:
        measured = await asyncio.to_thread(write_pattern, carrier, endpoint, grant, pattern, deadline)
        report = await asyncio.wait_for(reports.get(), timeout_s)
        if not report.landed:
            raise WireError(report.reason)
        if not pattern.arrived(slot, capacity):
            raise WireError("all was confirmed, but the slot does not hold what was written")
    except (WireError, TimeoutError) as error:
        await sink.revoke(grant.generation, 1.0)
        raise WireError(f"transport: the self-test of {endpoint.transport} failed: {error}") from error
    finally:
        await asyncio.to_thread(carrier.close)
    slot[:] = 0
    log.info(
        "transport %s: self-test moved %.1f MB in place at %.2f GB/s, checksums and bytes are right",
        measured.transport,
        measured.bytes / 1e6,
        measured.rate / 1e9,
    )
    return measured


def pattern_tokens(layout: KvLayout, capacity: int) -> int:
    """How many tokens tell enough: those of a slot, or as many as `MOST_BYTES` hold."""
    return max(1, min(capacity, MOST_BYTES // layout.token_bytes))
