"""A client that leaves, in each of six phases, many times (R5), before the decode node's own HTTP and sessions.

Engine and receiver are the node's fakes; state is committed when the prefill server has answered.
"""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.checkpoints import ensure
from persistent_engine.models import read_facts
from persistent_engine.runtime import FakeEngine
from persistent_engine.server import DecodeConfig, DecodeNode, FakeReceiver
from persistent_engine.server import serving as decode_serving
from router import DecodeNodeConfig, RouterConfig, running
from router.fake import FakePrefill, serving
from tests.router.stack import COMPLETIONS, NO_FALLBACK, SPEED, until
from tilert_connector.layout.fingerprint import Fingerprint

pytestmark = pytest.mark.contract("R5")
TIMES = 100
TOKENS, FIRST = 20, 9
LIMIT_S = 10.0  # a bound; R5's second is asked of the median, for a starved machine may stand still for longer


class Handoffs(dict[str, list[int]]):
    """Commits state as prompts are handed off, unless `lost`."""

    def __init__(self, receiver: FakeReceiver) -> None:
        super().__init__()
        self.receiver, self.lost = receiver, False

    def __setitem__(self, handoff: str, prompt: list[int]) -> None:
        super().__setitem__(handoff, prompt)
        if not self.lost:
            self.receiver.commit(handoff, len(prompt))


class Bench:
    """A router, a fake prefill server, the HTTP of a real decode node of one slot."""

    def __init__(self, url: str, http: aiohttp.ClientSession, vllm: FakePrefill, made: DecodeNode) -> None:
        self.url, self.http, self.vllm = url, http, vllm
        self.receiver: Any = made.receiver
        self.engine: Any = made.engine
        self.handoffs: Handoffs = vllm.handoffs  # type: ignore[assignment]
        self.freed: list[float] = []

    async def ask(self) -> list[int]:
        """A streamed reply to its end; its token ids."""
        body = {"model": "tiny", "prompt": [40, 41, 42], "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
        body |= {"return_token_ids": True}
        async with self.http.post(self.url + COMPLETIONS, json=body, headers=SPEED) as reply:
            said = await reply.json()
            assert reply.status == 200, said
            return list(said["choices"][0]["token_ids"])

    @property
    def idle(self) -> bool:
        return not (self.receiver.held or self.receiver.reserved or self.engine.busy)

    async def leave(self, condition: Callable[[], object], undo: Callable[[], None] = lambda: None) -> None:
        """Ask, hang up when the condition holds; the slot is free, and the next reply is right."""
        asking = asyncio.create_task(self.ask())
        await until(condition, LIMIT_S)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        start = time.monotonic()
        await until(lambda: self.idle, LIMIT_S)
        self.freed.append(time.monotonic() - start)
        undo()
        assert await asyncio.wait_for(self.ask(), LIMIT_S) == RIGHT


RIGHT = list(range(FIRST, FIRST + TOKENS))


@asynccontextmanager
async def bench(model_dir: Path) -> AsyncIterator[Bench]:
    receiver, engine = FakeReceiver(1), FakeEngine(0.001)
    config = DecodeConfig(model="x", port=0, slots=1, max_tokens=512, state_wait_s=5)
    blank = {name: "" for name in Fingerprint.__struct_fields__}
    mark = Fingerprint(**{**blank, "protocol": 1, "block_size": 1})  # type: ignore[arg-type]
    made = DecodeNode(config, read_facts(ensure("tiny-gqa")), receiver, engine, mark)
    vllm = FakePrefill(model_dir, first=FIRST, handoffs=Handoffs(receiver))
    async with decode_serving(made) as port, serving(vllm.app()) as url, aiohttp.ClientSession() as http:
        settings = RouterConfig(
            port=0,
            prefill=(url,),
            decode=(DecodeNodeConfig(url=f"http://127.0.0.1:{port}"),),
            classes=NO_FALLBACK,
            tokenizer=str(model_dir),
        )
        async with running(settings) as router:
            yield Bench(router, http, vllm, made)


async def queued(one: Bench) -> None:
    one.engine.delay_s = 0.01
    first = asyncio.create_task(one.ask())
    await until(lambda: one.engine.busy)
    leaving = asyncio.create_task(one.ask())
    rendered = len(one.vllm.calls)
    await until(lambda: len(one.vllm.calls) > rendered)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    one.engine.delay_s = 0.0
    assert await first == RIGHT, "who has the slot keeps it"
    start = time.monotonic()
    await until(lambda: one.idle, LIMIT_S)
    one.freed.append(time.monotonic() - start)
    one.engine.delay_s = 0.001
    assert await one.ask() == RIGHT


async def rendering(one: Bench) -> None:
    one.vllm.render_fault, seen = "hang", len(one.vllm.calls)
    await one.leave(lambda: len(one.vllm.calls) > seen, lambda: setattr(one.vllm, "render_fault", ""))


async def prefilling(one: Bench) -> None:
    one.vllm.generate_fault, seen = "hang", len(one.vllm.generated)
    await one.leave(lambda: len(one.vllm.generated) > seen, lambda: setattr(one.vllm, "generate_fault", ""))


async def waiting_for_state(one: Bench) -> None:
    one.handoffs.lost, seen = True, len(one.handoffs)
    await one.leave(lambda: len(one.handoffs) > seen, lambda: setattr(one.handoffs, "lost", False))


async def decoding(one: Bench) -> None:
    seen = len(one.engine.jobs)
    await one.leave(lambda: len(one.engine.jobs) > seen)


async def finishing(one: Bench) -> None:
    one.engine.delay_s, seen = 0.0, len(one.engine.jobs)
    moment = random.Random(seen).randrange(40)
    ticks = 0

    def condition() -> bool:
        nonlocal ticks
        ticks += len(one.engine.jobs) > seen
        return ticks > moment / 10

    await one.leave(condition, lambda: setattr(one.engine, "delay_s", 0.001))


@pytest.mark.parametrize("phase", [queued, rendering, prefilling, waiting_for_state, decoding, finishing])
@pytest.mark.timeout(180)
async def test_the_slot_is_free_and_the_next_reply_right(
    model_dir: Path, phase: Callable[[Bench], Awaitable[None]]
) -> None:
    async with bench(model_dir) as one:
        assert await one.ask() == RIGHT
        for _ in range(TIMES):
            await phase(one)
        median, longest = statistics.median(one.freed), max(one.freed)
        print(f"\n{phase.__name__}: left {TIMES} times, free after {median * 1e3:.1f} ms, at most {longest * 1e3:.1f}")
        assert len(one.freed) == TIMES and median < 1.0
