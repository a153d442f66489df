"""Plan files: same input, same bytes; damage is refused."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.checkpoints import ensure
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import read_facts
from persistent_engine.plan import Dtype, Task, decode, encode, render
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


@pytest.mark.parametrize("name, bytes_", [("waits", b"12345"), ("params", b"1234567")])
def test_a_table_that_ends_within_a_row_is_refused(name: str, bytes_: bytes) -> None:
    file = msgspec.msgpack.decode(_bytes()[8:])
    file["tables"][name] += bytes_
    with pytest.raises(PlanError, match="not whole rows"):
        decode(b"SPTPLAN2" + msgspec.msgpack.encode(file))
    del file["tables"][name]
    with pytest.raises(PlanError, match="has tables"):
        decode(b"SPTPLAN2" + msgspec.msgpack.encode(file))


def test_an_older_file_is_told_to_be_compiled_again() -> None:
    with pytest.raises(PlanError, match=r"SPTPLAN1.*compile it again"):
        decode(b"SPTPLAN1" + _bytes()[8:])


def test_what_points_nowhere_is_shown_all_the_same() -> None:
    plan = decode(_bytes())
    tasks = np.array(plan.tasks)
    tasks[0, [Task.OPERATOR, Task.LABEL, Task.ARG_COUNT, Task.WAIT_FIRST]] = (2**31 - 1, -1, 2**31 - 1, -(2**31))
    lines = list(render(dataclasses.replace(plan, tasks=tasks)))
    assert "?2147483647" in lines[3] and "?-1" in lines[3]


def test_sizes_of_elements() -> None:
    whole = [dtype for dtype in Dtype if dtype is not Dtype.NVFP4]
    assert [dtype.item for dtype in whole] == [4, 2, 4, 1, 1]
    assert all(dtype.bits / 8 - dtype.item < 0.1 for dtype in whole)
    assert [dtype.numpy.itemsize for dtype in (Dtype.F32, Dtype.BF16, Dtype.I32, Dtype.FP8)] == [4, 2, 4, 1]
    with pytest.raises(ValueError, match="whole bytes"):
        _ = Dtype.NVFP4.item
    with pytest.raises(KeyError):
        _ = Dtype.MXFP8.numpy
