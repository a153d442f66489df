"""Stock vLLM on two tensor parallel ranks: each sends the heads it has; MLA's state, which both have, goes once."""

import asyncio
import os
from pathlib import Path

import pytest

from deploy.checkpoints import ensure
from tests.tilert_connector.clients import leave
from tests.tilert_connector.live import CLOSE, DecodeNode, decode_node, furthest, idle, random_prompt
from tests.tilert_connector.test_vllm_mla import ROTATE_IN_TORCH
from tests.tilert_connector.vllm_server import VllmServer, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.soak]
SOAK = "SPEEDTIER_SOAK_S" in os.environ
MODELS = ("tiny-gqa", "tiny-mla") if SOAK else ("tiny-gqa",)
LENGTHS = (1, 31, 128, 129, 600) if SOAK else (1, 129)
TWO_RANKS = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "OMP_NUM_THREADS": "1"}


async def states(server: VllmServer, node: DecodeNode, model: Path) -> None:
    from tests.tilert_connector.reference_state import Reference

    reference = Reference(model)
    for tokens in LENGTHS:
        prompt, before = random_prompt(tokens, seed=tokens), node.receiver.status()["landed_bytes"]
        held = await node.handed(server, f"h{tokens}", prompt)
        assert furthest(node.state(tokens), reference.state(prompt)) < CLOSE, f"{tokens} tokens"
        assert node.receiver.status()["landed_bytes"] - before == tokens * node.layout.token_bytes
        node.receiver.release(held)
    await idle(server)


async def departures(server: VllmServer, node: DecodeNode) -> None:
    """A client that leaves while both ranks write, a decode node that nobody hears of, one that ends while it waits."""
    for number, after in enumerate((0.0, 0.01, 0.03, 0.1)):
        await leave(server, random_prompt(600, seed=number), node.params(f"left {number}"), after)
        await node.receiver.cancel(f"left {number}", "its client has left")
    nobody = {"tilert_host": "127.0.0.1", "tilert_ctrl_port": 9, "tilert_handoff": "nobody"}
    assert len(await asyncio.to_thread(server.complete, random_prompt(200, seed=9), nobody)) == 1
    await idle(server)
    held = await node.handed(server, "first", random_prompt(40, seed=10))
    await asyncio.to_thread(server.complete, random_prompt(300, seed=11), node.params("second"))
    assert server.metric("vllm:kv_cache_usage_perc") > 0  # the only slot is taken, so the blocks wait
    assert held.tokens == 40


@pytest.mark.contract("H2", "H5", "H6")
@pytest.mark.timeout(600)  # two ranks that wait for each other are slow where others want the cores
@pytest.mark.parametrize("name", MODELS)
async def test_two_ranks(name: str, tmp_path: Path) -> None:
    model = ensure(name)
    flags = ["--max-model-len", "1024", "--tensor-parallel-size", "2"]
    flags += ["--max-num-batched-tokens", "64"] if name == "tiny-gqa" else ["--compilation-config", ROTATE_IN_TORCH]
    with vllm_server(model, tmp_path / "log", *flags, environment=TWO_RANKS) as server:
        async with decode_node(model) as node:
            await states(server, node, model)
            if not SOAK:  # ranks that wait for each other take a busy machine's every core
                return
            await departures(server, node)
        await idle(server)
        async with decode_node(model) as another:
            held = await another.handed(server, "last", random_prompt(33, seed=12))
            assert held.tokens == 33
        await idle(server)
