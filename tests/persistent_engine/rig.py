"""A small model bound to memory, with or without resident workers: what engine tests stand on."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np

from deploy.checkpoints import ensure
from persistent_engine.check import certificate
from persistent_engine.compile import Granularity, Knobs, compile_plan, this_cpu
from persistent_engine.models import ModelFacts, load_weights, read_facts
from persistent_engine.plan import Dtype, Plan, encode
from persistent_engine.runtime import Binding, Job, Sampling, allocate
from persistent_engine.runtime.cpu import CpuEngine
from persistent_engine.server.node import layout_of
from tilert_connector.transport import allocate_slots

TILE = 32


@dataclasses.dataclass
class Rig:
    """facts, plan and binding of one model over its own slots."""

    directory: Path
    facts: ModelFacts
    plan: Plan
    binding: Binding
    slots: list[np.ndarray]

    @contextlib.asynccontextmanager
    async def engine(self, deadline_s: float = 10.0) -> AsyncIterator[CpuEngine]:
        """Resident workers, ended at the end."""
        engine = CpuEngine(self.binding, self.slots, deadline_s)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()


def build(
    name: str,
    *,
    workers: int = 1,
    policy: str = "list",
    tiles_per_worker: int = 1,
    dtype: str = "float32",
    capacity: int = 512,
    slots: int = 1,
    devices: int = 1,
    granularity: Granularity = "group",
) -> Rig:
    """Compile and bind one of the small checkpoints."""
    directory = ensure(name)
    facts = msgspec.structs.replace(read_facts(directory), dtype=dtype)
    plan = compile_plan(
        facts,
        this_cpu(workers, devices),
        capacity=capacity,
        tile_tokens=TILE,
        policy=policy,
        knobs=Knobs(events=granularity, tiles_per_worker=tiles_per_worker),
    )
    layout = layout_of(facts, Dtype.BF16 if dtype == "bfloat16" else Dtype.F32, TILE)
    room = plan.manifest.capacity
    memory = [slot.array for slot in allocate_slots("tcp", slots, layout.slot_bytes(room))]
    planes = {plane.name: start for plane, start in zip(layout.planes, layout.offsets(room), strict=True)}
    binding = allocate(plan, load_weights(plan, directory), planes, certificate(encode(plan)))
    return Rig(directory, facts, plan, binding, memory)


async def decode(engine: CpuEngine, job: Job) -> tuple[list[int], str]:
    """All tokens of a job and why it ended."""
    reasons: list[str] = []
    tokens = [token async for ids in engine.decode(job, reasons.append) for token in ids]
    assert len(reasons) == 1
    return tokens, reasons[0]


async def prefill(engine: CpuEngine, prompt: list[int], slot: int = 0) -> int:
    """Fill the slot with the state of all of `prompt`, one token a step; gives the token after it."""
    token = -1
    for position, one in enumerate(prompt):
        (token,), _ = await decode(engine, Job(slot=slot, position=position, token=one, most=1))
    return token


async def complete(engine: CpuEngine, prompt: list[int], most: int, sampling: Sampling | None = None) -> list[int]:
    """Greedy (or sampled) continuation of `prompt`, prefilled by the engine itself."""
    first = await prefill(engine, prompt)
    sampling = sampling or Sampling()
    rest, _ = await decode(engine, Job(slot=0, position=len(prompt), token=first, most=most - 1, sampling=sampling))
    return [first, *rest]


def prompt_of(facts: ModelFacts, length: int, seed: int = 0) -> list[int]:
    """Random token ids, special tokens left out."""
    return np.random.default_rng(seed).integers(10, facts.vocabulary, size=length).tolist()
