"""Mixed traffic with clients that leave: every answer right, nothing held at the end. `make soak` runs it for long."""

import asyncio
import contextlib
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoints import ensure
from deploy.up import UpConfig
from persistent_engine.models import read_facts
from tests.e2e.serving import Client, prompts, stack

SECONDS = float(os.environ.get("SPEEDTIER_SOAK_S", "15"))
MODEL = "tiny-gqa"
CLIENTS = 6


async def _one(router: Client, prompt: list[int], tier: str, expected: list[int], patience: float | None) -> str:
    """Ask once; `patience` seconds at most, then leave. Gives how it ended."""
    call = router.complete(MODEL, prompt, tier, max_tokens=len(expected))
    try:
        async with asyncio.timeout(patience):
            reply = await call
    except TimeoutError:
        return "left"
    assert reply["choices"][0]["token_ids"] == expected
    return tier


async def _client(router: Client, known: list[tuple[list[int], list[int]]], seed: int, until: float) -> list[str]:
    source, ends = random.Random(seed), []
    while time.monotonic() < until:
        prompt, expected = source.choice(known)
        patience = source.uniform(0, 0.2) if source.random() < 0.3 else None
        ends.append(await _one(router, prompt, source.choice(["speed", "native"]), expected, patience))
    return ends


@pytest.mark.contract("H5", "R4", "R5")
@pytest.mark.soak
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_mixed_traffic_with_clients_that_leave(tmp_path: Path) -> None:
    async with stack(tmp_path, UpConfig(model=MODEL, decode={"slots": 2})) as (plan, router, _running):
        known = []
        for prompt in prompts(20, read_facts(ensure(MODEL)).vocabulary, 3):
            solo = await router.complete(MODEL, prompt, "native", max_tokens=24)
            known.append((prompt, solo["choices"][0]["token_ids"]))
        until = time.monotonic() + SECONDS
        ends = await asyncio.gather(*(_client(router, known, seed, until) for seed in range(CLIENTS)))
        counts = {end: sum(one.count(end) for one in ends) for end in ("speed", "native", "left")}
        print(f"\n{SECONDS:.0f} s of mixed traffic: {counts}")
        assert all(counts.values())
        status: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while status.get("sessions", True) or status["slots_held"] or status["open"]:
                    async with router.http.get(f"{plan.decode_url}/decode_status") as reply:
                        status = await reply.json()
                    await asyncio.sleep(0.05)
        assert (status["sessions"], status["slots_held"], status["open"]) == ({}, {}, {})
        for prompt, expected in known[:5]:
            assert await _one(router, prompt, "speed", expected, None) == "speed"
