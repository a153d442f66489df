"""H12 on the real stack: a conversation sends what is new, and its answers are those of a cold run."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.checkpoints import ensure
from deploy.up import Deployment, UpConfig
from persistent_engine.models import read_facts
from persistent_engine.plan import Dtype
from persistent_engine.server.node import layout_of
from tests.e2e.serving import Client, plain_vllm, prompts, stack

TURNS, NEW, REPLY = 10, 60, 40
SOAK = "SPEEDTIER_SOAK_S" in os.environ


class Talk:
    """One model, a router that hands off, a vLLM that does not, and the decode node's count of bytes."""

    def __init__(self, name: str, plan: Deployment, router: Client, plain: Client, token_bytes: int) -> None:
        self.name, self.plan, self.router, self.plain, self.token_bytes = name, plan, router, plain, token_bytes

    async def status(self) -> dict[str, Any]:
        async with self.router.http.get(self.plan.decode_url + "/decode_status") as reply:
            found: dict[str, Any] = await reply.json()
            return found

    async def turn(self, ids: list[int], salt: str | None = None) -> tuple[list[int], float]:
        """The speed tier's reply, equal to that of a vLLM that starts cold, and the tokens whose state was sent."""
        before = (await self.status())["landed_bytes"]
        more = {"cache_salt": salt} if salt else {}
        reply = await self.router.complete(self.name, ids, "speed", max_tokens=REPLY, **more)
        sent = ((await self.status())["landed_bytes"] - before) / self.token_bytes
        cold = await self.plain.complete(self.name, ids, max_tokens=REPLY, cache_salt=f"cold-{len(ids)}-{salt}")
        said: list[int] = reply["choices"][0]["token_ids"]
        assert said == cold["choices"][0]["token_ids"]
        return said, sent


@asynccontextmanager
async def talk(name: str, directory: Path, **receiver: Any) -> AsyncIterator[Talk]:
    facts = read_facts(ensure(name))
    part, plain_url = plain_vllm(ensure(name), name, "float32")
    config = UpConfig(model=name, decode={"max_tokens": 2048, "receiver": receiver})

    token_bytes = layout_of(facts, Dtype.F32, 128).token_bytes
    async with (
        stack(directory, config, part) as (plan, router, _running),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as http,
    ):
        yield Talk(name, plan, router, Client(http, plain_url), token_bytes)


def words(count: int, seed: int) -> Sequence[list[int]]:
    return [one[:NEW] for one in prompts(count + 40, 1000, seed) if len(one) >= NEW][:count]


@pytest.mark.contract("H2", "H12")
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"] if SOAK else ["tiny-gqa"])
async def test_ten_turns_send_what_is_new(name: str, tmp_path: Path) -> None:
    async with talk(name, tmp_path) as one:
        history: list[int] = []
        worst = 0.0
        for number, new in enumerate(words(TURNS, 3)):
            history = history + new
            said, sent = await one.turn(history)
            worst = max(worst, sent / len(new))
            # One more than is new: a reply's last token was chosen, and its state not computed.
            assert sent <= 1.05 * len(new), f"turn {number}: {sent} tokens were sent for {len(new)} new ones"
            history = history + said
        print(f"\n{name}: {TURNS} turns, {len(history)} tokens, sent at most {worst:.3f} of each turn's new tokens")
        _, again = await one.turn(history)
        _, full = await one.turn(history)
        assert (again, full) == (1, 0)
        # Another tenant with the same prompt gets nothing of it, and then nothing of the first tenant is left.
        _, other = await one.turn(history, salt="another tenant")
        assert other == len(history)
        edited = [*history[:100], (history[100] + 1) % 1000, *history[101:]]
        await one.turn(history)
        _, resent = await one.turn(edited)
        assert len(edited) - 100 <= resent <= len(edited) - 64
