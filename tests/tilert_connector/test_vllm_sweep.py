"""Prompt length x chunk size x what the prefix cache holds: the decode node's memory is the prefill node's cache, and
not a byte more than that was sent. A second connector, which shares nothing with ours, copies the cache.
"""

import asyncio
import copy
import os
from pathlib import Path

import numpy as np
import pytest

from deploy.checkpoints import ensure
from tests.tilert_connector.live import DecodeNode, decode_node, idle, random_prompt
from tests.tilert_connector.vllm_server import CONNECTORS, VllmServer, vllm_server

SOAK = "SPEEDTIER_SOAK_S" in os.environ
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 500, 2000) if SOAK else (1, 16, 32, 33, 129, 500)
CHUNKS = (16, 17, 64, 512) if SOAK else (17,)
KINDS = ("cold", "partial hit", "full hit", "preempted")
BLOCK = 32
USABLE = 71
"""Cache blocks: one prompt of 2,000 tokens fits, and a little more. vLLM keeps one more for itself."""
LONGEST = USABLE * BLOCK
WITNESS = {
    "kv_connector": "Witness",
    "kv_connector_module_path": "tests.tilert_connector.witness",
    "kv_role": "kv_producer",
}

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.soak]


class Case:
    """One marked request against one server and one decode node."""

    def __init__(self, server: VllmServer, node: DecodeNode, file: Path, chunk: int, name: str) -> None:
        self.server, self.node, self.file, self.chunk, self.name = server, node, file, chunk, name

    async def complete(self, prompt: list[int], handoff: str = "", max_tokens: int = 1) -> list[int]:
        params = self.node.params(handoff) if handoff else None
        if params and handoff == self.name:
            params["witness"] = str(self.file)
        return await asyncio.to_thread(self.server.complete, prompt, params, max_tokens)

    async def run(self, kind: str, tokens: int, seed: int) -> None:
        prompt, hits = random_prompt(tokens, seed), self.server.metric("vllm:prefix_cache_hits_total")
        if kind == "preempted":
            await self.preempted(prompt, seed)
            return
        before = self.node.receiver.status()["landed_bytes"]
        if kind != "cold":
            await self.complete(prompt if kind == "full hit" else [*prompt[: tokens // 2], 7])
        self.node.slot[:] = 0xFF
        await self.complete(prompt, self.name)
        held = await self.node.receiver.committed(self.name, 20)
        hits = self.server.metric("vllm:prefix_cache_hits_total") - hits
        known = {"cold": 0, "partial hit": tokens // 2, "full hit": tokens - 1}[kind]
        assert hits == known // BLOCK * BLOCK
        await self.check(tokens, before)
        self.node.receiver.release(held)

    async def preempted(self, prompt: list[int], seed: int) -> None:
        """The slot is taken, so that nothing is sent yet; an older request grows until vLLM takes the blocks of the
        younger one, which is ours."""
        blocks, steps = -(-len(prompt) // BLOCK), len(prompt) // (self.chunk - 1) + 1
        older = random_prompt(max((USABLE - 1 - blocks) * BLOCK - steps, 1), seed + 1)
        growth = min((1 + blocks) * BLOCK + steps, steps + 200, LONGEST - len(older)) - 2
        first = f"{self.name} first"
        await self.complete(random_prompt(2, seed + 2), first)
        held = await self.node.receiver.committed(first, 20)
        taken = self.server.metric("vllm:num_preemptions_total")
        await asyncio.to_thread(self.server.post, "/pause?mode=keep", {})  # so that the older one is the older one
        replies = [asyncio.create_task(self.complete(older, max_tokens=growth))]
        await asyncio.sleep(0.3)
        replies.append(asyncio.create_task(self.complete(prompt, self.name, max_tokens=64)))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(self.server.post, "/resume", {})
        await asyncio.gather(*replies)
        assert self.server.metric("vllm:num_preemptions_total") > taken
        async with asyncio.timeout(10):
            while (record := self.node.receiver._admission.open.get(self.name)) is None or not record.writings:
                await asyncio.sleep(0.01)
        assert record.writings[0].offer.round > 0, "another request was preempted"
        before = self.node.receiver.status()["landed_bytes"]
        self.node.slot[:] = 0xFF
        self.node.receiver.release(held)
        held = await self.node.receiver.committed(self.name, 20)
        await self.check(len(prompt), before)
        self.node.receiver.release(held)

    async def check(self, tokens: int, before: int) -> None:
        """Byte for byte, and counted. The file has, for each layer, [blocks][heads][BLOCK][2 * head_dim], where each
        head of each block is really keys [head_dim][BLOCK], then values [BLOCK][head_dim]."""
        sent = self.node.receiver.status()["landed_bytes"] - before
        assert sent == tokens * self.node.layout.token_bytes
        state = self.node.state(tokens)
        async with asyncio.timeout(10):
            while not self.file.exists():
                await asyncio.sleep(0.005)
        with np.load(self.file) as layers:
            assert len(layers) * 4 == len(state)  # two heads, keys and values
            for name, cache in layers.items():
                layer = name.split(".")[2]
                blocks, heads, _, width = cache.shape
                for head in range(heads):
                    keys, values = cache[:, head].reshape(blocks, 2, -1).transpose(1, 0, 2)
                    keys = keys.reshape(blocks, width // 2, BLOCK).transpose(0, 2, 1).reshape(-1, width // 2)
                    values = values.reshape(-1, width // 2)
                    for letter, rows in (("k", keys), ("v", values)):
                        got = state[f"layers.{layer}.{letter}.{head}"]
                        assert got.tobytes() == rows[:tokens].tobytes(), f"{name} {letter}.{head}"
        self.file.unlink()


@pytest.mark.contract("H2", "H6")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", CHUNKS)
async def test_what_arrives_is_what_the_cache_holds(chunk: int, tmp_path: Path) -> None:
    model, connectors = ensure("tiny-gqa"), copy.deepcopy(CONNECTORS)
    connectors["kv_connector_extra_config"]["connectors"].insert(0, WITNESS)  # type: ignore[index]
    flags = ("--block-size", str(BLOCK), "--num-gpu-blocks-override", str(USABLE + 1))
    flags += ("--max-model-len", str(LONGEST), "--max-num-batched-tokens", str(chunk))
    settings = {"PYTHONPATH": str(Path(__file__).parents[2]), "VLLM_SERVER_DEV_MODE": "1"}  # /pause and /resume
    with vllm_server(model, tmp_path / "log", *flags, connectors=connectors, environment=settings) as server:
        async with decode_node(model, BLOCK, LONGEST) as node:
            for number, tokens in enumerate(LENGTHS):
                for index, kind in enumerate(KINDS):
                    seed = 1000 * number + 10 * index
                    case = Case(server, node, tmp_path / "blocks", chunk, f"{tokens} {kind}")
                    try:
                        await case.run(kind, tokens, seed)
                    except Exception as error:
                        error.add_note(f"{tokens} tokens, chunks of {chunk}, {kind}")
                        raise
            await idle(server)
