"""Several routers before the same decode nodes share no state (R4): no slot is used twice, and nobody starves."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from router import DecodeNodeConfig, RouterConfig, running
from router.fake import FakeDecode, FakePrefill, serving
from router.fake.model import reply_of
from tests.router.stack import COMPLETIONS, NO_FALLBACK, SPEED

COUNT = 1000 if "SPEEDTIER_SOAK_S" in os.environ else 300
CALLERS, TOKENS, PROMPT = 36, 5, [50, 51, 52]


@pytest.mark.contract("R4")
async def test_three_routers_and_two_nodes(model_dir: Path) -> None:
    server = FakePrefill(model_dir, speaks=True)
    nodes = [FakeDecode(source=server, slots=1, pace_s=0.001) for _ in range(2)]
    truth, waits = reply_of(PROMPT, TOKENS), []
    async with AsyncExitStack() as exits:
        vllm = await exits.enter_async_context(serving(server.app()))
        urls = [await exits.enter_async_context(serving(node.app())) for node in nodes]
        config = RouterConfig(
            port=0,
            prefill=(vllm,),
            decode=tuple(DecodeNodeConfig(url=url) for url in urls),
            classes=NO_FALLBACK,
            tokenizer=str(model_dir),
            queue_wait_s=60,
            queue_limit=1000,
        )
        routers = [await exits.enter_async_context(running(config)) for _ in range(3)]
        http = await exits.enter_async_context(aiohttp.ClientSession())
        left = COUNT

        async def caller(number: int) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                body = {"model": "tiny", "prompt": PROMPT, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
                start = time.monotonic()
                url = routers[number % 3] + COMPLETIONS
                async with http.post(url, json={**body, "return_token_ids": True}, headers=SPEED) as reply:
                    said = await reply.json()
                    assert reply.status == 200, said
                assert said["choices"][0]["token_ids"] == truth
                waits.append(time.monotonic() - start)

        begun = time.monotonic()
        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
        took = time.monotonic() - begun
    assert [node.kept.crowded for node in nodes] == [[], []], "nobody decoded without a slot"
    assert [node.most_active for node in nodes] == [1, 1]
    # In one fair queue a caller waits for the others that are ahead of it: a few rounds, never most of the run.
    print(f"\n{len(waits)} requests in {took:.1f} s, longest {max(waits):.2f} s, mean {sum(waits) / len(waits):.2f} s")
    assert len(waits) == COUNT and max(waits) < took / 2
