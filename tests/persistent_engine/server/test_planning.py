"""A node runs plans that are checked and that fit its model, and no others."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from deploy.checkpoints import ensure
from persistent_engine.check import certificate
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import read_facts
from persistent_engine.plan import Dtype, Plan, encode
from persistent_engine.runtime.cpu import CpuEngine
from persistent_engine.server import DecodeConfig
from persistent_engine.server.node import bind_model
from persistent_engine.server.planning import BESIDE
from speedtier.errors import PlanError
from tests.persistent_engine.rig import build


def _config(path: Path, name: str = "tiny-mla") -> DecodeConfig:
    return DecodeConfig(model=str(ensure(name)), max_tokens=64, plan=str(path), dtype="float32")


def _plan(name: str, devices: int = 1, capacity: int = 64) -> Plan:
    facts = msgspec.structs.replace(read_facts(ensure(name)), dtype="float32")
    profile = this_cpu(1, devices)
    return compile_plan(facts, profile, capacity=capacity, tile_tokens=1, state_dtype=Dtype.F32)


def _write(path: Path, plan: Plan) -> None:
    path.write_bytes(encode(plan))
    path.with_name(path.name + BESIDE).write_bytes(certificate(encode(plan)).to_bytes())


@pytest.mark.contract("E1")
def test_a_plan_is_written_with_its_certificate_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    first = bind_model(_config(path))
    assert path.exists() and (tmp_path / f"plan{BESIDE}").exists()
    again = bind_model(_config(path))
    assert again.binding.plan.digest == first.binding.plan.digest
    assert again.binding.certificate == first.binding.certificate


def test_another_plan_of_the_same_model_is_run(tmp_path: Path) -> None:
    plan = _plan("tiny-mla", devices=2, capacity=80)
    _write(tmp_path / "plan", plan)
    bound = bind_model(_config(tmp_path / "plan"))
    assert bound.binding.plan.digest == plan.digest and bound.room == 80
    CpuEngine(bound.binding, bound.slots)


def test_a_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "plan", _plan("tiny-gqa"))
    with pytest.raises(PlanError, match="does not fit the model"):
        bind_model(_config(tmp_path / "plan"))


def test_a_plan_with_another_scale_is_refused(tmp_path: Path) -> None:
    plan = _plan("tiny-mla")
    params = plan.params.copy()
    params[params == params.min()] *= 2  # epsilon
    _write(tmp_path / "plan", dataclasses.replace(plan, params=params))
    with pytest.raises(PlanError, match="its parameters differ"):
        bind_model(_config(tmp_path / "plan"))


def test_a_plan_for_fewer_tokens_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "plan", _plan("tiny-mla", capacity=32))
    with pytest.raises(PlanError, match="is for 32 tokens"):
        bind_model(_config(tmp_path / "plan"))


def test_a_plan_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(encode(_plan("tiny-mla")))
    with pytest.raises(PlanError, match="no certificate"):
        bind_model(_config(tmp_path / "plan"))


def test_a_certificate_of_another_plan_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "plan", _plan("tiny-mla", devices=2))
    (tmp_path / "plan").write_bytes(encode(_plan("tiny-mla")))
    with pytest.raises(PlanError, match="certificate's plan"):
        bind_model(_config(tmp_path / "plan"))


def test_the_engine_refuses_what_nobody_checked() -> None:
    rig = build("tiny-mla", capacity=64)
    with pytest.raises(PlanError, match="no certificate"):
        CpuEngine(dataclasses.replace(rig.binding, certificate=None), rig.slots)
    other = build("tiny-mla", capacity=64, devices=2).binding.certificate
    with pytest.raises(PlanError, match="certificate's plan"):
        CpuEngine(dataclasses.replace(rig.binding, certificate=other), rig.slots)
