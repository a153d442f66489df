"""What the CPU has no kernel for is refused before anything runs."""

import dataclasses

import pytest

from persistent_engine.manifest import number
from persistent_engine.plan import BufferKind, BufferRow, Dtype, Plan, Task
from persistent_engine.runtime.cpu import CpuEngine
from speedtier.errors import PlanError
from tests.persistent_engine.rig import Rig, build


def with_plan(rig: Rig, **tables: object) -> Rig:
    plan: Plan = dataclasses.replace(rig.plan, **tables)  # type: ignore[arg-type]
    return dataclasses.replace(rig, binding=dataclasses.replace(rig.binding, plan=plan))


@pytest.mark.contract("P2")
def test_operators_without_a_kernel_are_refused() -> None:
    rig = build("tiny-gqa", capacity=64)
    tasks = rig.plan.tasks.copy()
    tasks[-1, Task.OPERATOR] = number("verify")
    with pytest.raises(PlanError, match="'verify'"):
        CpuEngine(with_plan(rig, tasks=tasks).binding, rig.slots)


@pytest.mark.contract("P2")
def test_an_operator_of_another_manifest_is_refused() -> None:
    rig = build("tiny-gqa", capacity=64)
    names = ("other", *rig.plan.manifest.operators[1:])
    manifest = type(rig.plan.manifest)(
        **{field: getattr(rig.plan.manifest, field) for field in rig.plan.manifest.__struct_fields__}
        | {"operators": names}
    )
    with pytest.raises(PlanError, match="'other'"):
        CpuEngine(with_plan(rig, manifest=manifest).binding, rig.slots)


@pytest.mark.contract("P2")
def test_weights_of_a_dtype_without_a_kernel_are_refused() -> None:
    rig = build("tiny-gqa", capacity=64)
    buffers = rig.plan.buffers.copy()
    buffers[buffers[:, BufferRow.KIND] == BufferKind.WEIGHT, BufferRow.DTYPE] = Dtype.FP8
    with pytest.raises(PlanError, match="FP8"):
        CpuEngine(with_plan(rig, buffers=buffers).binding, rig.slots)
