"""A certificate is of one plan and one checker, and of a plan without a finding only."""

import dataclasses

import msgspec
import numpy as np
import pytest

from persistent_engine.check import RULES, Certificate, certificate, check, load_certificate, verify
from persistent_engine.plan import Plan, Task, decode, encode
from speedtier.errors import PlanError
from tests.mutation.plan.built import two_devices
from tests.mutation.plan.tables import Tables


class Narrow:
    name, devices, lanes = "a narrow one", 2, 7


def other_plan() -> Plan:
    plan = two_devices()
    params = np.array(plan.params)
    params[0] *= 2
    return dataclasses.replace(plan, params=params)


def test_it_is_of_the_plan_that_was_checked() -> None:
    data = encode(two_devices())
    given = certificate(data)
    assert load_certificate(given.to_bytes()) == given
    assert given.rules == tuple(RULES) == tuple(f"P{number}" for number in range(1, 14))
    verify(decode(data), given)
    with pytest.raises(PlanError, match="plan is"):
        verify(other_plan(), given)


@pytest.mark.parametrize("field", ["checker", "rules"])
def test_another_checker_or_fewer_rules_make_it_void(field: str) -> None:
    plan = two_devices()
    given = certificate(encode(plan))
    other = {"checker": "0" * 64, "rules": given.rules[:-1]}[field]
    with pytest.raises(PlanError, match=field):
        verify(plan, msgspec.structs.replace(given, **{field: other}))


def test_a_plan_with_a_finding_gets_none() -> None:
    with pytest.raises(PlanError, match=r"P3.*8 lanes"):
        certificate(encode(two_devices()), Narrow())
    with pytest.raises(PlanError, match="P1"):
        certificate(b"nothing")


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b'{"plan": 1, "checker": "", "rules": []}'])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(PlanError, match="certificate"):
        load_certificate(data)


def test_the_same_plan_gives_the_same_certificate() -> None:
    data = encode(two_devices())
    assert isinstance(certificate(data), Certificate)
    assert certificate(data).to_bytes() == certificate(data).to_bytes()


def test_a_report_reads_well() -> None:
    good = check(encode(two_devices()))
    assert list(good.lines()) == [f"plan {good.digest[:16]}: 19 tasks, 13 rules, no finding"]
    tables = Tables(two_devices())
    tables.tasks[:, Task.TILES] = 0
    lines = list(check(tables.file()).lines())
    assert lines[1] == "P4: it has 0 tiles [task 0 (embed)]"
    assert (
        any(line.startswith("P4: it waits for an event that no task signals [task 1 (") for line in lines)
        or len(lines) > 20
    )
    assert lines[0].endswith("findings") and any("more" in line for line in lines)
    assert next(iter(check(b"").lines())) == "plan unreadable: 1 findings"
