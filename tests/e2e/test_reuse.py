"""H4 on the real stack: a slot whose writer was delayed, stopped or killed serves the next request, and only that."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoints import ensure
from deploy.up import UpConfig
from tests.e2e.serving import Client, prompts, stack
from tests.tilert_connector.faults.child import Child, Gone
from tests.tilert_connector.faults.engines import engine_missing

SOAK = "SPEEDTIER_SOAK_S" in os.environ
COUNT = 200 if SOAK else 9
TRANSPORTS = ("tcp", "shm", "nixl", "mooncake") if SOAK else ("shm",)
REPLY = 24
NAME = "tiny-gqa"


class Reuse:
    """One slot. A: a child whose state is random bytes. B: real vLLM, with its answer when it is alone."""

    def __init__(self, vllm: Client, decode: Client, ctrl_port: int, rng: random.Random) -> None:
        self.vllm, self.decode, self.ctrl_port, self.rng = vllm, decode, ctrl_port, rng
        self.writer: Child

    async def start_writer(self) -> None:
        self.writer = await Child("garbage_child", ensure(NAME), "float32", 128).start()

    async def answer(self, prompt: list[int], handoff: str) -> list[int]:
        """B's tokens by way of the slot."""
        params = {"tilert_host": "127.0.0.1", "tilert_ctrl_port": self.ctrl_port, "tilert_handoff": handoff}
        first = await self.vllm.complete(NAME, prompt, max_tokens=1, kv_transfer_params=params)
        (token,) = first["choices"][0]["token_ids"]
        body = {"rid": handoff, "first_token_id": token, "max_tokens": REPLY - 1, "sampling": {"ignore_eos": True}}
        status, reply, _ = await self.decode.post("/pd/decode", body)
        assert status == 200, reply
        return [token, *reply["token_ids"]]

    async def spoil(self, handoff: str, how: str) -> "asyncio.Task[Any]":
        """A is being written; then its sender is delayed, stopped or killed, and the handoff cancelled."""
        step_s = 0.05 if how == "delay" else 0.001
        asked = {"handoff": handoff, "ctrl_port": self.ctrl_port, "tokens": 3000, "chunk": 200, "step_s": step_s}
        writing = asyncio.create_task(self.writer.ask("prefill", 60, **asked))
        async with asyncio.timeout(20):
            while (await self._status())["open"].get("writing") != 1:
                await asyncio.sleep(0.002)
        await asyncio.sleep(self.rng.random() * 0.02)
        if how == "stop":
            self.writer.stop()
        elif how == "kill":
            await self.writer.kill()
        status, reply, _ = await self.decode.post("/pd/cancel", {"rid": handoff})
        assert status == 200, reply
        return writing

    async def _status(self) -> dict[str, Any]:
        async with self.decode.http.get(self.decode.url + "/decode_status") as reply:
            found: dict[str, Any] = await reply.json()
            return found


@asynccontextmanager
async def reuse(transport: str, directory: Path) -> AsyncIterator[Reuse]:
    config = UpConfig(model=NAME, decode={"receiver": {"transport": transport}})
    async with stack(directory, config) as (plan, router, _running):
        async with router.http.get(plan.decode_url + "/capabilities") as reply:
            port = (await reply.json())["ctrl_port"]
        vllm, decode = Client(router.http, plan.vllm_url), Client(router.http, plan.decode_url)
        made = Reuse(vllm, decode, port, random.Random(4))
        await made.start_writer()
        try:
            yield made
        finally:
            made.writer.go_on()
            await made.writer.kill()


@pytest.mark.contract("H3", "H4")
@pytest.mark.vllm
@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_next_request_answers_as_if_alone(transport: str, tmp_path: Path) -> None:
    if missing := engine_missing(transport):
        pytest.skip(missing)
    asked = prompts(8, 1000, 6)
    async with reuse(transport, tmp_path) as one:
        solo = [
            (await one.vllm.complete(NAME, prompt, max_tokens=REPLY))["choices"][0]["token_ids"] for prompt in asked
        ]
        for number in range(COUNT):
            how = ("delay", "stop", "kill")[number % 3]
            writing = await one.spoil(f"a{number}", how)
            answering = asyncio.create_task(one.answer(asked[number % 8], f"b{number}"))
            if how == "stop":  # it wakes up while B is written or decoded
                await asyncio.sleep(one.rng.random() * 0.15)
                one.writer.go_on()
            assert await answering == solo[number % 8], f"{how}, number {number}"
            if how == "kill":
                with pytest.raises(Gone):
                    await writing
                await one.start_writer()
            else:
                assert await writing == {"released": True}
        print(f"\n{transport}: {COUNT} answers equal to their solo answers in a slot that was being written")
