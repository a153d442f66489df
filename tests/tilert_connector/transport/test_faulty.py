"""Faults over real carriers: what the sink makes of each."""

import pytest

from tests.tilert_connector.transport.bench import LAYOUT, Bench, bench
from tilert_connector.errors import WireError
from tilert_connector.transport import Fault, FaultyCarriers


async def ended(one: Bench, transport: str, cues: FaultyCarriers) -> str:
    """Send all; the writer's error, or how it ended."""
    one.carrier = cues(transport)
    writer = one.writer(one.grant())
    try:
        for frame in one.frames(0, 40):
            await one.drive(writer, writer.room, within=1.5)
            writer.write(frame, one.pieces(frame))
        await one.drive(writer, lambda: bool(one.reports), within=1.5)
    except WireError as error:
        return str(error)
    except AssertionError:
        return "silence"
    return "landed" if one.reports[0].landed else one.reports[0].reason


@pytest.mark.contract("H5", "H8")
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("frame", [0, 3])
async def test_a_fault_ends_in_a_report_or_in_silence_and_never_in_wrong_bytes(
    transport: str, fault: Fault, frame: int
) -> None:
    async with bench(transport) as one:
        carrier = one.carrier
        cues = FaultyCarriers(lambda _: carrier)
        cues.fault(fault, frame)
        reason = await ended(one, transport, cues)
        if fault is Fault.DELAY:
            assert reason == "landed" and one.landed(40).all()
            return
        assert reason != "landed" and (reason == "silence") == (fault is Fault.STALL)
        one.writers[0].close()
        report = await one.reported()
        assert not report.landed and report.landed_bytes < 40 * LAYOUT.token_bytes
