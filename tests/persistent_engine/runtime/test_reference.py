"""E7: every buffer of a step is what the manifest's references say it is."""

import numpy as np
import pytest

from persistent_engine.models import load_weights
from persistent_engine.plan import BufferKind, BufferRow, Register
from persistent_engine.runtime import Job, allocate, interpret
from tests.persistent_engine.rig import Rig, build, decode, prefill, prompt_of

SCRATCH = ("scores", "sample_scratch")


def _compare(rig: Rig, other: dict[int, np.ndarray], tolerance: float) -> int:
    compared = 0
    for number, row in enumerate(rig.plan.buffers):
        name = rig.binding.name(number)
        if row[BufferRow.KIND] != BufferKind.ACTIVATION or name.endswith(SCRATCH):
            continue
        ours, reference = rig.binding.arrays[number].astype(np.float64), other[number].astype(np.float64)
        scale = max(1e-6, float(np.abs(reference).max()))
        assert np.abs(ours - reference).max() / scale < tolerance, name
        compared += 1
    return compared


@pytest.mark.contract("E7")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
async def test_step_equals_reference(name: str, dtype: str) -> None:
    rig = build(name, dtype=dtype, workers=2)
    prompt = prompt_of(rig.facts, TOKENS := 37)
    async with rig.engine() as engine:
        token = await prefill(engine, prompt)
        before = rig.slots[0].copy()
        (got,), _ = await decode(engine, Job(slot=0, position=TOKENS, token=token, most=1))
    planes = {rig.binding.name(number): start for number, start in rig.binding.planes.items()}
    mirror = allocate(rig.plan, load_weights(rig.plan, rig.directory), planes)
    registers = {Register.POSITION: TOKENS, Register.TOKEN: token, Register.TEMPERATURE: 0}
    after = interpret(mirror, before, registers)
    assert _compare(rig, mirror.arrays, 2e-5 if dtype == "float32" else 2e-2) > 20
    kind = np.float32 if dtype == "float32" else np.uint16
    ours, reference = rig.slots[0].view(kind), before.view(kind)
    if dtype == "float32":
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)
        assert got == after[Register.NEXT]
    else:
        assert np.abs(ours.astype(int) - reference.astype(int)).max() <= 8  # steps of the last place, of 7 bits
    assert (ours != 0).any()
