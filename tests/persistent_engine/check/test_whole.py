"""A whole model on eight devices is checked in its time and memory."""

import os
import resource
import time

import pytest

from persistent_engine.check import check
from persistent_engine.compile import Knobs, compile_plan
from persistent_engine.devices import DeviceSheet, device
from persistent_engine.models import facts_of
from persistent_engine.plan import encode

SECONDS, BYTES = 120.0, 4 << 30
DEPTHS = (0, 3) if "SPEEDTIER_SOAK_S" in os.environ else (0,)


class Limits:
    """What a data sheet says to P3."""

    def __init__(self, sheet: DeviceSheet) -> None:
        self.name, self.devices, self.lanes = sheet.name, sheet.devices, int(sheet.figures.lanes.value)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_plan_of_a_whole_model_has_no_finding(depth: int) -> None:
    sheet = device("8xB200")
    plan = compile_plan(facts_of("glm-5.1"), sheet, capacity=32_768, knobs=Knobs(draft_depth=depth))
    data = encode(plan)
    started = time.perf_counter()
    report = check(data, Limits(sheet))
    seconds = time.perf_counter() - started
    assert report.findings == ()
    assert len(plan.devices) == 8 and report.tasks > 10_000
    assert seconds < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < BYTES  # of the whole process
