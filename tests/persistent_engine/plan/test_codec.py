"""Plan files: same input, same bytes; damage is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.checkpoints import ensure
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import read_facts
from persistent_engine.plan import Task, decode, encode, render
from speedtier.errors import PlanError


def _bytes(name: str = "tiny-mla") -> bytes:
    return encode(compile_plan(read_facts(ensure(name)), this_cpu(2), capacity=256))


@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
def test_same_input_same_bytes_and_back(name: str) -> None:
    data = _bytes(name)
    assert data == _bytes(name)
    plan = decode(data)
    assert encode(plan) == data
    assert plan.tasks.itemsize * Task.WIDTH == 64
    assert any("next_token" in line for line in render(plan))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_refused(data) -> None:  # type: ignore[no-untyped-def]
    good = _bytes()
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PlanError):
        decode(bytes(bad))


@pytest.mark.parametrize("bad", [b"", b"not a plan", _bytes()[:-1], _bytes() + b"x"])
def test_what_is_no_plan_is_refused(bad: bytes) -> None:
    with pytest.raises(PlanError):
        decode(bad)
