"""How much of a prompt's state had left the prefill node when its prefill ended, on the real stack.

`ratio.overlap`: the share in chunks of 512 tokens. `figures.overlap` has that of one chunk, too, where nothing but the
layers' order helps. Bytes count as having left when the decode node has confirmed them.
"""

import asyncio
import random
import tempfile
from pathlib import Path
from statistics import median

import aiohttp
from rich.console import Console

from deploy.bench.exposition import metric
from deploy.bench.handoff.config import HandoffBenchConfig
from deploy.bench.handoff.part import Part
from deploy.processes import Stack
from deploy.up import Deployment, UpConfig, VllmConfig, deployment
from persistent_engine.models import read_facts
from speedtier.errors import SpeedtierError

__all__ = ["overlap"]

TOKENS = 2000
CHUNKS = {"chunks of 512": 512, "one chunk": 2048}
MODEL = "tiny-gqa"


def overlap(config: HandoffBenchConfig) -> Part:
    """Measure. Raises: SpeedtierError."""
    if not config.overlap_prompts:
        return Part(title="overlap was not measured", columns=("prefill",), rows=())
    shares = {name: asyncio.run(_shares(chunk, config.overlap_prompts)) for name, chunk in CHUNKS.items()}
    middle = {name: median(values) for name, values in shares.items()}
    return Part(
        title=f"bytes of a {TOKENS}-token prompt that had left when its prefill ended, {MODEL}",
        columns=("prefill", "median", "lowest", "highest"),
        rows=tuple(
            (name, f"{middle[name]:.1%}", f"{min(values):.1%}", f"{max(values):.1%}") for name, values in shares.items()
        ),
        figures={"overlap": middle},
        ratio={"overlap": middle["chunks of 512"]},
    )


async def _shares(chunk: int, prompts: int) -> list[float]:
    """Of each prompt alone: bytes that left early, to all bytes."""
    with tempfile.TemporaryDirectory() as directory:
        flags = ("--max-num-batched-tokens", str(chunk))
        plan = deployment(UpConfig(model=MODEL, port=0, directory=directory, vllm=VllmConfig(arguments=flags)))
        async with Stack(Path(directory), Console(stderr=True)) as running, aiohttp.ClientSession() as http:
            await running.start(plan.parts)
            source, shares = random.Random(0), []
            for _ in range(prompts + 1):
                before = await _bytes(http, plan.vllm_url)
                await _ask(http, plan, [source.randrange(10, read_facts(plan.model).vocabulary) for _ in range(TOKENS)])
                sent, early = (now - then for now, then in zip(await _settled(http, plan, before), before, strict=True))
                shares.append(early / sent)
            return shares[1:]  # the first one opens connections


async def _ask(http: aiohttp.ClientSession, plan: Deployment, prompt: list[int]) -> None:
    body = {"model": plan.served_name, "prompt": prompt, "max_tokens": 4, "temperature": 0}
    headers = {"x-traffic-class": "speed"}
    async with http.post(f"{plan.router_url}/v1/completions", json=body, headers=headers) as reply:
        if reply.status != 200 or "x-speedtier-fallback" in reply.headers:
            raise SpeedtierError(f"overlap: the speed tier did not answer ({reply.status}): {await reply.text()}")


async def _bytes(http: aiohttp.ClientSession, url: str) -> tuple[float, float]:
    """Sent at all, and early, since the server's start."""
    async with http.get(f"{url}/metrics") as reply:
        text = await reply.text()
    return metric(text, "vllm:tilert_sent_bytes_total"), metric(text, "vllm:tilert_early_bytes_total")


async def _settled(http: aiohttp.ClientSession, plan: Deployment, before: tuple[float, float]) -> tuple[float, float]:
    """vLLM shows a handoff one step after it ended."""
    async with asyncio.timeout(30):
        while (now := await _bytes(http, plan.vllm_url))[0] == before[0]:
            await asyncio.sleep(0.02)
    return now
