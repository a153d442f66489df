"""What a slot held before is not taken for what arrives."""

import asyncio
import secrets
from collections.abc import Sequence

import numpy as np
import pytest

from tests.tilert_connector.transport.bench import CAPACITY, LAYOUT, PLANES
from tilert_connector.errors import WireError
from tilert_connector.layout.views import plane_views
from tilert_connector.transport import Grant, Report, allocate_slots, cut_frames
from tilert_connector.transport.announce import decode_place
from tilert_connector.transport.engine import Span, Transfer
from tilert_connector.transport.engine_sink import EngineSink
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, CHECKSUM, pack_header
from tilert_connector.transport.landing import Landing


class LateEngine:
    """Says that bytes may come late; here none ever comes."""

    patience_s = 5.0

    def register(self, address: int, size: int) -> None:
        return

    def forget(self, address: int) -> None:
        return

    def name(self) -> bytes:
        return b"late"

    def meet(self, name: bytes) -> str:
        return ""

    def write(self, peer: str, spans: Sequence[Span]) -> Transfer:
        raise WireError("never")

    def poll(self) -> None:
        return

    def close(self) -> None:
        return


def grant(tokens: int, held: int = 0) -> Grant:
    key = secrets.token_bytes(16)
    return Grant(handoff="h", rank=0, generation=1, key=key, slot=0, tokens=tokens, planes=PLANES, held=held)


@pytest.mark.contract("H8", "H12")
@pytest.mark.parametrize(("held", "tokens"), [(0, 40), (16, 40), (7, 33), (40, 40)])
def test_blot_overwrites_what_may_be_written_and_nothing_else(held: int, tokens: int) -> None:
    before = np.random.default_rng(1).integers(0, 256, LAYOUT.slot_bytes(CAPACITY), np.uint8)
    memory = before.copy()
    Landing(grant(tokens, held), LAYOUT, memory, CAPACITY).blot()
    for offset, plane in zip(LAYOUT.offsets(CAPACITY), LAYOUT.planes, strict=True):
        for token in range(CAPACITY):
            mine, old = (
                b"".join(view.tobytes() for view in plane_views(slot[offset:], plane, token, token + 1))
                for slot in (memory, before)
            )
            assert (mine != old) == (held <= token < tokens), f"{plane.name}, token {token}"


@pytest.mark.contract("H4", "H8")
async def test_bytes_that_lie_there_already_do_not_confirm_a_write() -> None:
    """The slot holds the very bytes that are announced, and the engine has not brought them yet."""
    slots = allocate_slots("mooncake", 1, LAYOUT.slot_bytes(CAPACITY))
    sink = EngineSink("late", LateEngine, LAYOUT, slots, CAPACITY, "127.0.0.1")  # type: ignore[arg-type]
    reports: list[Report] = []
    assert sink.late
    await sink.start()
    try:
        one = grant(40)
        landing = Landing(one, LAYOUT, slots[0].array, CAPACITY)
        (frame,) = cut_frames(LAYOUT, PLANES, 0, 40, 1 << 20)
        digest = landing.digest(frame)
        for view in landing.views(0, 1, frame):
            digest.update(view.tobytes())
        sink.admit(one, reports.append)
        reader, writer = await asyncio.open_connection("127.0.0.1", sink.describe().port)
        writer.write(ATTACH.pack(ATTACH_MAGIC, 1, one.key))
        place = b""
        while decode_place(place) is None:
            place += await asyncio.wait_for(reader.read(4096), 5)
        writer.write(pack_header(0, 1, frame) + CHECKSUM.pack(digest.intdigest()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        assert not reports
        writer.close()
    finally:
        await sink.close()
