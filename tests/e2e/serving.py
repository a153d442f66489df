"""The real stack (vLLM with the connector, decode node, router) and a client for each of its addresses."""

import asyncio
import contextlib
import io
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console

from deploy.processes import Part, Stack, free_ports
from deploy.up import Deployment, UpConfig, VllmConfig, deployment, vllm_part

QUIET = Console(file=io.StringIO())
LENGTHS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 383, 384, 385, 511, 512, 513, 600]
"""Around multiples of the block sizes (16 for MLA, 128 for GQA), and the ends of the range."""


class Client:
    """Posts to one base URL."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url

    async def post(self, path: str, body: Any, tier: str | None = None) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON, headers."""
        headers = {"content-type": "application/json"} | ({"x-traffic-class": tier} if tier else {})
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.http.post(self.url + path, data=data, headers=headers) as reply:
            return reply.status, msgspec.json.decode(await reply.read()), dict(reply.headers)

    async def complete(self, model: str, prompt: list[int], tier: str | None = None, **more: Any) -> dict[str, Any]:
        """A greedy completion with token ids, which the tier itself must have given."""
        body = {
            "model": model,
            "prompt": prompt,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            **more,
        }
        status, reply, headers = await self.post("/v1/completions", body, tier)
        assert status == 200, reply
        assert "x-speedtier-fallback" not in headers, headers
        assert isinstance(reply, dict)
        return reply


def prompts(count: int, vocabulary: int, seed: int) -> list[list[int]]:
    """Random token ids; lengths from LENGTHS, then random ones of 1 to 600."""
    source = random.Random(seed)
    lengths = (LENGTHS + [source.randint(1, 600) for _ in range(count)])[:count]
    return [[source.randrange(10, vocabulary) for _ in range(length)] for length in lengths]


async def limited(calls: Sequence[Any], at_once: int) -> list[Any]:
    """Results of coroutines, `at_once` of them running."""
    room = asyncio.Semaphore(at_once)

    async def one(call: Any) -> Any:
        async with room:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))


@contextlib.asynccontextmanager
async def stack(directory: Path, config: UpConfig, *extra: Part) -> AsyncIterator[tuple[Deployment, Client, Stack]]:
    """All parts up; a client of the router."""
    config = msgspec.structs.replace(config, port=0, directory=str(directory))
    plan = deployment(config)
    async with Stack(directory, QUIET) as running:
        await running.start([*plan.parts, *extra])
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http:
            yield plan, Client(http, plan.router_url), running


def plain_vllm(plan_model: Path, name: str, dtype: str) -> tuple[Part, str]:
    """A vLLM of the same model without our connector, and its URL."""
    (port,) = free_ports(1)
    part = vllm_part(VllmConfig(), plan_model, name, dtype, port, connector=False)
    return msgspec.structs.replace(part, name="plain"), f"http://127.0.0.1:{port}"
