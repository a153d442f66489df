"""What every back end promises."""

import asyncio
import contextlib

import numpy as np
import pytest

from tests.tilert_connector.transport.bench import CAPACITY, LAYOUT, Bench, bench
from tilert_connector.errors import WireError
from tilert_connector.transport import Frame

IN_PLACE = ("shm", "nixl", "mooncake")

pytestmark = pytest.mark.parametrize("transport", ["fake", "shm", "tcp", "nixl", "mooncake"])


@pytest.mark.contract("H2")
async def test_what_is_written_lands_and_is_reported_once(transport: str) -> None:
    async with bench(transport) as one:
        writer = one.writer(one.grant())
        for first, last in ((0, 16), (16, 32), (32, 33), (33, 40)):
            await one.send(writer, one.frames(first, last))
        report = await one.reported()
        assert (report.generation, report.landed, report.reason) == (1, True, "")
        assert report.landed_bytes == 40 * LAYOUT.token_bytes
        assert one.landed(40).all()
        writer.close()
        await asyncio.sleep(0.05)
        assert not one.reports


@pytest.mark.contract("H3")
async def test_nothing_outside_the_tokens_is_touched(transport: str) -> None:
    async with bench(transport) as one:
        one.slots[0][:] = 0xAB
        writer = one.writer(one.grant(tokens=21))
        await one.send(writer, one.frames(0, 21))
        expected = np.full_like(one.slots[0], 0xAB)
        offsets = LAYOUT.offsets(CAPACITY)
        for index, plane in enumerate(LAYOUT.planes):
            for start, size in plane.spans(0, 21):
                at = offsets[index] + start
                expected[at : at + size] = one.source[at : at + size]
        assert np.array_equal(one.slots[0], expected)
        assert not one.slots[1].any()


@pytest.mark.contract("H3")
@pytest.mark.parametrize("what", ["key", "generation", "revoked", "second"])
async def test_without_a_live_grant_no_byte_lands(transport: str, what: str) -> None:
    async with bench(transport) as one:
        grant = one.grant()
        if what == "key":
            writer = one.writer(grant, key=bytes(16))
        elif what == "generation":
            writer = one.writer(grant, generation=2)
        elif what == "revoked":
            writer = one.writer(grant)
            assert await one.sink.revoke(grant.generation, 1)
        else:
            await one.send(one.writer(grant), one.frames(0, 40))
            one.slots[0][:] = 0
            writer = one.writer(grant)
        assert await one.refused(writer, one.frames(0, 40))
        writer.close()
        assert not one.slots[0].any()


@pytest.mark.contract("H3")
@pytest.mark.parametrize(
    "frame",
    [
        Frame(0, 1, 0, 41, 41 * 32),  # more tokens than granted
        Frame(0, 1, 8, 16, 8 * 32),  # a gap
        Frame(0, 9, 0, 8, 8 * 32 * 9),  # a plane that is not there
        Frame(1, 1, 0, 8, 0),  # no plane
        Frame(0, 1, 8, 8, 0),  # no token
        Frame(0, 1, 0, 8, 8 * 32 + 1),  # another size than it says
        Frame(2**31, 2**32 - 1, 0, 8, 8 * 32),
        Frame(0, 1, 2**32 - 8, 2**32 - 1, 7 * 32),
    ],
)
async def test_a_frame_outside_the_grant_ends_it_unwritten(transport: str, frame: Frame) -> None:
    async with bench(transport) as one:
        writer = one.writer(one.grant())
        await one.drive(writer, writer.room)
        with pytest.raises(WireError):
            writer.write(frame, [memoryview(b"\7" * (frame.size % 4096))])
            await one.drive(writer, lambda: writer.completed() == 1)
        writer.close()
        report = await one.reported()
        assert not report.landed and report.reason
        # A writer that puts its bytes into the slot itself may have put them into what it was granted, in vain.
        assert not one.slots[0].any() or transport in IN_PLACE
        assert not one.slots[1].any()


@pytest.mark.contract("H2")
async def test_a_frame_twice_ends_the_grant(transport: str) -> None:
    async with bench(transport) as one:
        writer = one.writer(one.grant())
        (frame,) = one.frames(0, 16, limit=1 << 20)
        await one.send(writer, [frame])
        assert await one.refused(writer, [frame])
        assert "starts plane 0 at token 0, expected 16" in (await one.reported()).reason
        writer.close()


@pytest.mark.contract("H4")
async def test_after_revoke_nothing_lands_and_nothing_is_reported(transport: str) -> None:
    async with bench(transport) as one:
        grant = one.grant()
        writer = one.writer(grant)
        await one.send(writer, one.frames(0, 16))
        assert await one.sink.revoke(grant.generation, 2)
        before = one.slots[0].copy()
        assert await one.refused(writer, one.frames(16, 40))
        writer.close()
        await asyncio.sleep(0.05)
        assert np.array_equal(one.slots[0], before) and not one.reports
        assert await one.sink.revoke(grant.generation, 2)


@pytest.mark.contract("H5")
async def test_a_writer_that_leaves_early_is_reported(transport: str) -> None:
    async with bench(transport) as one:
        writer = one.writer(one.grant())
        await one.send(writer, one.frames(0, 16))
        writer.close()
        report = await one.reported()
        assert not report.landed and "closed by the prefill node" in report.reason


@pytest.mark.contract("H5")
async def test_a_writer_hears_that_the_sink_has_gone(transport: str) -> None:
    one = Bench(transport)
    await one.sink.start()
    writer = one.writer(one.grant())
    await one.send(writer, one.frames(0, 16))
    await one.sink.close()
    assert await one.refused(writer, one.frames(16, 40))
    writer.close()
    with pytest.raises(WireError):
        late = one.carrier.open(one.sink.describe(), 1, bytes(16))
        with contextlib.closing(late):
            await one.drive(late, late.room)
    one.carrier.close()


async def test_two_grants_do_not_see_each_other(transport: str) -> None:
    async with bench(transport) as one:
        writers = [one.writer(one.grant(generation=slot + 1, slot=slot)) for slot in range(2)]
        for first, last in ((0, 20), (20, 40)):
            for writer in writers:
                await one.send(writer, one.frames(first, last))
        assert one.landed(40, 0).all() and one.landed(40, 1).all()
        for writer in writers:
            writer.close()


@pytest.mark.contract("H12")
@pytest.mark.parametrize("start", [0, 16, 32])
async def test_a_writer_starts_anywhere_in_what_the_slot_holds(transport: str, start: int) -> None:
    async with bench(transport) as one:
        one.slots[0][:] = 0xAB
        grant = one.grant(held=32)
        writer = one.writer(grant)
        await one.send(writer, one.frames(start, 40))
        report = await one.reported()
        assert report.landed and report.landed_bytes == (40 - start) * LAYOUT.token_bytes
        assert one.landed(40).all() == (start == 0)
        writer.close()


@pytest.mark.contract("H12")
async def test_a_writer_starts_nowhere_else(transport: str) -> None:
    async with bench(transport) as one:
        writer = one.writer(one.grant(held=16))
        assert await one.refused(writer, one.frames(32, 40))
        writer.close()
        report = await one.reported()
        assert not report.landed and "expected 16" in report.reason


@pytest.mark.contract("H12")
async def test_what_a_slot_holds_outlives_a_writer_that_never_came(transport: str) -> None:
    async with bench(transport) as one:
        one.slots[0][:] = 0xAB
        assert await one.sink.revoke(one.grant(held=16).generation, 1)
        assert (one.slots[0] == 0xAB).all()
