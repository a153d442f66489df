"""E1, E4, E5, E6: the resident loop runs without Python, stops within a step, costs nothing idle, and reports hangs."""

import asyncio
import contextlib
import ctypes
import dataclasses
import os
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from persistent_engine.plan import Wait
from persistent_engine.runtime import EngineBusy, EngineFailed, Job, Sampling, allocate
from persistent_engine.runtime.cpu import CpuEngine
from speedtier.errors import ConfigError
from tests.persistent_engine.rig import build, decode, prefill, prompt_of


@pytest.mark.contract("E1")
@pytest.mark.parametrize("workers", [1, 2])
async def test_decoding_goes_on_while_the_gil_is_held(workers: int) -> None:
    rig = build("tiny-gqa", workers=workers, capacity=3000)
    sleep_with_gil = ctypes.PyDLL(None).usleep  # PyDLL does not release the GIL
    async with rig.engine() as engine:
        job = Job(slot=0, position=0, token=20, most=2900)
        resident = engine._resident
        sequence = resident.submit(job)
        while resident.published() < 10:
            await asyncio.sleep(0)
        start = time.monotonic_ns()
        sleep_with_gil(300_000)
        end = time.monotonic_ns()
        assert end - start >= 300e6
        resident.cancel(sequence)
        while resident.finished(sequence) is None:
            await asyncio.sleep(0.001)
        times = resident.times[: resident.published()]
        during = np.count_nonzero((times > start) & (times < end))
        assert during > 50


@pytest.mark.contract("E4")
async def test_length_stop_and_cancel() -> None:
    rig = build("tiny-mla")
    async with rig.engine() as engine:
        first = await prefill(engine, prompt_of(rig.facts, 9))
        tokens, reason = await decode(engine, Job(slot=0, position=9, token=first, most=40))
        assert (len(tokens), reason) == (40, "length")
        stop = tokens[17]
        cut = tokens.index(stop) + 1
        sampling = Sampling(stops=(1, stop))
        got, reason = await decode(engine, Job(slot=0, position=9, token=first, most=40, sampling=sampling))
        assert (got, reason) == (tokens[:cut], "stop")
        # One step after the word is set nothing more is decoded.
        resident = engine._resident
        sequence = resident.submit(Job(slot=0, position=9, token=first, most=400))
        while resident.published() < 5:
            await asyncio.sleep(0)
        resident.cancel(sequence)
        at_cancel = resident.published()
        while resident.finished(sequence) is None:
            await asyncio.sleep(0)
        assert resident.published() <= at_cancel + 1
        assert resident.ring[:5].tolist() == tokens[:5]
        # and the next request is right
        assert (await decode(engine, Job(slot=0, position=9, token=first, most=40)))[0] == tokens


@pytest.mark.contract("E4")
async def test_leaving_the_stream_frees_the_engine() -> None:
    rig = build("tiny-gqa", slots=2)
    async with rig.engine() as engine:
        source = engine.decode(Job(slot=1, position=0, token=50, most=500), lambda reason: None)
        async for _ in source:
            with pytest.raises(EngineBusy):
                await decode(engine, Job(slot=0, position=0, token=50, most=1))
            break
        await source.aclose()
        assert not engine.busy
        tokens, reason = await decode(engine, Job(slot=0, position=0, token=50, most=3))
        assert (len(tokens), reason) == (3, "length")


@pytest.mark.contract("E4", "H4")
async def test_who_is_cancelled_twice_still_leaves_only_when_the_engine_has_stopped() -> None:
    rig = build("tiny-gqa", slots=2)
    async with rig.engine() as engine:

        async def follow(started: asyncio.Event) -> None:
            async with contextlib.aclosing(
                engine.decode(Job(slot=1, position=0, token=50, most=500), lambda reason: None)
            ) as source:
                async for _ in source:
                    started.set()

        for _ in range(20):
            started = asyncio.Event()
            task = asyncio.create_task(follow(started))
            await started.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert task.cancelled()
            assert not engine.busy
            assert (await decode(engine, Job(slot=0, position=0, token=50, most=1)))[1] == "length"


@pytest.mark.parametrize(
    "wrong",
    [
        {"slot": 1},
        {"slot": -1},
        {"position": -1},
        {"most": 0},
        {"most": 513},
        {"position": 512},
        {"token": 1000},
        {"token": -1},
        {"sampling": Sampling(stops=tuple(range(300)))},
    ],
)
async def test_a_job_that_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    rig = build("tiny-gqa")
    good: dict[str, object] = {"slot": 0, "position": 0, "token": 20, "most": 2}
    async with rig.engine() as engine:
        with pytest.raises(ConfigError):
            await decode(engine, Job(**{**good, **wrong}))
        assert len((await decode(engine, Job(**good)))[0]) == 2


@pytest.mark.parametrize(
    "extreme",
    [
        Sampling(temperature=0.9, top_k=2**63),
        Sampling(temperature=0.9, seed=2**63),
        Sampling(temperature=0.9, seed=-(2**70)),
        Sampling(stops=(2**63, -1, 2**31)),
    ],
)
async def test_numbers_beyond_a_word_cost_nobody_anything(extreme: Sampling) -> None:
    rig = build("tiny-gqa")
    async with rig.engine() as engine:
        job = Job(slot=0, position=0, token=20, most=4)
        before, _ = await decode(engine, job)
        tokens, reason = await decode(engine, Job(slot=0, position=0, token=20, most=4, sampling=extreme))
        assert (len(tokens), reason) == (4, "length")
        assert not engine.busy
        assert (await decode(engine, job))[0] == before


async def test_what_cannot_be_submitted_leaves_the_engine_free() -> None:
    rig = build("tiny-gqa")
    async with rig.engine() as engine:
        with pytest.raises(OverflowError):
            await decode(engine, Job(slot=0, position=0, token=20, most=4, sampling=Sampling(top_k=-(2**70))))
        assert not engine.busy
        assert len((await decode(engine, Job(slot=0, position=0, token=20, most=4)))[0]) == 4


@pytest.mark.contract("E5")
@pytest.mark.parametrize("workers", [1, 2])
async def test_idle_costs_no_cpu(workers: int) -> None:
    """Under 1 % of a core, after work as before it."""
    rig = build("tiny-gqa", workers=workers)
    async with rig.engine() as engine:
        await decode(engine, Job(slot=0, position=0, token=20, most=50))
        await asyncio.sleep(0.2)
        threads = [t.native_id for t in threading.enumerate() if t.name.startswith("resident-")]
        assert len(threads) == workers

        def ticks() -> int:
            total = 0
            for thread in threads:
                fields = Path(f"/proc/self/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
            return total

        before, start = ticks(), time.monotonic()
        await asyncio.sleep(3)
        used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
        assert used / (time.monotonic() - start) < 0.01


@pytest.mark.contract("E6")
async def test_a_hang_is_reported_and_the_engine_says_so() -> None:
    rig = build("tiny-gqa", workers=2)
    waits = rig.plan.waits.copy()
    waits[:, Wait.COUNT] += 1  # every wait wants one signal more than will come
    plan = dataclasses.replace(rig.plan, waits=waits)
    planes = {rig.binding.name(number): start for number, start in rig.binding.planes.items()}
    assert rig.binding.certificate is not None
    forged = msgspec.structs.replace(rig.binding.certificate, plan=plan.digest)
    broken = CpuEngine(allocate(plan, rig.binding.arrays, planes, forged), rig.slots, deadline_s=0.2)
    await broken.start()
    try:
        with pytest.raises(EngineFailed, match=r"worker \d .* event .* expected \d+, actual \d+; producers: task"):
            await decode(broken, Job(slot=0, position=0, token=20, most=4))
        assert broken.failure is not None
        with pytest.raises(EngineFailed):
            await decode(broken, Job(slot=0, position=0, token=20, most=4))
    finally:
        await broken.close()


async def test_workers_leave_when_stopped_in_the_middle() -> None:
    rig = build("tiny-mla", workers=2)
    async with rig.engine() as engine:
        engine._resident.submit(Job(slot=0, position=0, token=20, most=500))
    assert not [t for t in threading.enumerate() if t.name.startswith("resident-")]
