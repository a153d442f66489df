"""E8, E2: virtual devices with memory of their own, any policy and any grain of events give the same bits as one."""

import functools
import itertools

import numpy as np
import pytest

from persistent_engine.compile import POLICIES
from persistent_engine.models import load_weights
from persistent_engine.plan import BufferKind, BufferRow, Device, Register
from persistent_engine.runtime import Job, allocate, interpret
from tests.persistent_engine.rig import Rig, build, complete, decode, prefill, prompt_of

DEVICES = (1, 2, 4, 8)
Outcome = tuple[list[int], bytes, bytes]


async def _outcome(name: str, devices: int, policy: str, granularity: str) -> Outcome:
    """Tokens, the last step's logits, the whole slot."""
    workers = 2 if devices < 4 else 1
    rig = build(name, devices=devices, workers=workers, policy=policy, granularity=granularity, capacity=64)  # type: ignore[arg-type]
    async with rig.engine(deadline_s=60) as engine:
        tokens = await complete(engine, prompt_of(rig.facts, 4), 4)
    (logits,) = (n for n in rig.binding.arrays if rig.binding.name(n) in ("logits", "logits@0"))
    return tokens, rig.binding.arrays[logits].tobytes(), rig.slots[0].tobytes()


@functools.cache
def _expected() -> dict[str, Outcome]:
    return {}


@pytest.mark.contract("E2", "E8")
@pytest.mark.slow
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_bits_do_not_depend_on_devices(policy: str, devices: int) -> None:
    known = _expected()
    if not known:
        known["one"] = await _outcome("tiny-mla", 1, "list", "group")
    for granularity in ("node", "group", "tile"):
        assert await _outcome("tiny-mla", devices, policy, granularity) == known["one"], granularity


@pytest.mark.contract("E8")
async def test_heads_of_gqa_and_sampling_are_split_too() -> None:
    assert await _outcome("tiny-gqa", 4, "list", "group") == await _outcome("tiny-gqa", 1, "list", "group")


@pytest.mark.contract("E8")
def test_devices_have_memory_of_their_own_and_parts_of_the_weights() -> None:
    rig = build("tiny-mla", devices=4, capacity=64)
    plan = rig.plan
    assert len(plan.devices) == 4 and len({rig.plan.manifest.names[n] for n in plan.devices[:, Device.NAME]}) == 4
    owned = [n for n, row in enumerate(plan.buffers) if row[BufferRow.KIND] != BufferKind.STATE]
    spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in (rig.binding.arrays[n] for n in owned))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans)), "two buffers share memory"
    heads = [rig.binding.arrays[n] for n in owned if rig.binding.name(n).startswith("lm_head.weight@")]
    (whole,) = (
        alone.binding.arrays[n]
        for alone in [build("tiny-mla", capacity=64)]
        for n in alone.binding.arrays
        if alone.binding.name(n) == "lm_head.weight"
    )
    np.testing.assert_array_equal(np.concatenate(heads), whole)


def _close(rig: Rig, number: int, reference: np.ndarray) -> bool:
    ours = rig.binding.arrays[number].astype(np.float64)
    return bool(np.abs(ours - reference).max() < 2e-5 * max(1e-6, float(np.abs(reference).max())))


@pytest.mark.contract("E7", "E8")
@pytest.mark.parametrize("devices", [2, 8])
async def test_every_device_has_what_the_reference_says(devices: int) -> None:
    rig = build("tiny-mla", devices=devices, capacity=64)
    prompt = prompt_of(rig.facts, 9)
    async with rig.engine(deadline_s=60) as engine:
        token = await prefill(engine, prompt)
        before = rig.slots[0].copy()
        (got,), _ = await decode(engine, Job(slot=0, position=9, token=token, most=1))
    planes = {rig.binding.name(number): start for number, start in rig.binding.planes.items()}
    mirror = allocate(rig.plan, load_weights(rig.plan, rig.directory), planes)
    after = interpret(mirror, before, {Register.POSITION: 9, Register.TOKEN: token, Register.TEMPERATURE: 0})
    compared = 0
    for number, row in enumerate(rig.plan.buffers):
        scratch = rig.binding.name(number).partition("@")[0].endswith(("scores", "sample_scratch"))
        if row[BufferRow.KIND] == BufferKind.ACTIVATION and not scratch:
            assert _close(rig, number, mirror.arrays[number].astype(np.float64)), rig.binding.name(number)
            compared += 1
    assert compared > 20 * devices and got == after[Register.NEXT]
