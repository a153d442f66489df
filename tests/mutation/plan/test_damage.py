"""Damaged plan files are refused with a finding; none makes the checker fail or takes memory that the file does not
have.

SPEEDTIER_SOAK_S (set by `make soak`) makes it 100,000 files; SPEEDTIER_FUZZ_SEED starts elsewhere.
"""

import os
import tracemalloc
from collections import Counter

import pytest

from persistent_engine.check import Report, check
from persistent_engine.plan import TABLES, decode, encode, render
from speedtier.errors import PlanError
from tests.mutation.plan.built import two_devices
from tests.mutation.plan.damage import EXTREMES, damaged, extreme

FILES = 100_000 if "SPEEDTIER_SOAK_S" in os.environ else 2_000
FIRST = int(os.environ.get("SPEEDTIER_FUZZ_SEED", "0"))


def refused(report: Report) -> bool:
    return not report.clean and all(finding.message for finding in report.findings)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_damaged_file_is_refused_with_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    plan, kinds, passed = two_devices(), Counter[str](), Counter[str]()
    for seed in range(FIRST, FIRST + FILES):
        kind, data = damaged(seed, plan)
        report = check(data)
        kinds[kind] += 1
        if not refused(report):
            passed[kind if decode(data).digest != plan.digest else "the same plan"] += 1
    with capsys.disabled():
        print(f"\n{FILES} damaged files: {dict(kinds)}; plans that keep the rules all the same: {dict(passed)}")
    assert set(passed) <= {"the same plan", "rehashed", "reshaped", "relabelled"}
    assert sum(passed.values()) < FILES * 0.1


@pytest.mark.parametrize("name", sorted(TABLES))
def test_extreme_numbers_in_every_column(name: str) -> None:
    plan = two_devices()
    tracemalloc.start()
    try:
        for column in range(TABLES[name][1]):
            for value in EXTREMES:
                data = extreme(plan, name, column, value)
                check(data)
                list(render(decode(data)))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert encode(plan) == encode(two_devices())


CLAIMS = (
    b"\xdf\xff\xff\xff\xff",
    b"\x83\xa6digest\xdb\xff\xff\xff\xff",
    b"\x83\xa8manifest\x88\xa5names\xdd\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x91" * 5000,
)


def test_lengths_that_a_file_only_claims_take_no_memory() -> None:
    for claim in CLAIMS:
        with pytest.raises(PlanError):
            decode(b"SPTPLAN2" + claim)
        assert not check(b"SPTPLAN2" + claim).clean
