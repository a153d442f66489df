"""Stock vLLM on CPU_ATTN: chunked prefill, prefix hits, preemption, aborts; the state against transformers.

The cache has 11 blocks of 128 tokens, so that preemption is easy to have.
"""

import asyncio
import contextlib
import http.client
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.checkpoints import ensure
from tests.tilert_connector.clients import leave
from tests.tilert_connector.live import CLOSE, decode_node, furthest, idle, random_prompt
from tests.tilert_connector.vllm_server import VllmServer, vllm_server
from tilert_connector import HandoffFailed

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
CLIENTS = 100 if "SPEEDTIER_SOAK_S" in os.environ else 40
LENGTHS = (1, 15, 16, 17, 127, 128, 129, 600)
FLAGS = ("--max-model-len", "1024", "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", "12")


@pytest.fixture(scope="module")
def model() -> Path:
    return ensure("tiny-gqa")


@pytest.fixture(scope="module")
def reference(model: Path):  # type: ignore[no-untyped-def]
    from tests.tilert_connector.reference_state import Reference

    return Reference(model)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with vllm_server(model, tmp_path_factory.mktemp("vllm") / "log", *FLAGS) as running:
        yield running


@pytest.mark.contract("H2", "H6", "H7")
async def test_the_state_of_every_length_and_of_a_prefix_hit(server, model, reference) -> None:  # type: ignore[no-untyped-def]
    async with decode_node(model) as node:
        for number, tokens in enumerate((*LENGTHS, LENGTHS[-1])):
            prompt = random_prompt(tokens, seed=tokens)
            hits = server.metric("vllm:prefix_cache_hits_total")
            held = await node.handed(server, f"h{number}", prompt)
            assert held.tokens == tokens
            assert furthest(node.state(tokens), reference.state(prompt)) < CLOSE, f"{tokens} tokens"
            node.receiver.release(held)
        assert server.metric("vllm:prefix_cache_hits_total") - hits >= 512
    await idle(server)


@pytest.mark.contract("H1", "H2")
async def test_marked_and_general_requests_in_one_batch(server, model, reference) -> None:  # type: ignore[no-untyped-def]
    prompts = [random_prompt(40 + n, seed=100 + n) for n in range(3)]
    alone = [await asyncio.to_thread(server.complete, prompt, None, 24) for prompt in prompts]
    async with decode_node(model) as node:
        general = [asyncio.create_task(asyncio.to_thread(server.complete, p, None, 24)) for p in prompts]
        prompt = random_prompt(300, seed=7)
        held = await node.handed(server, "h", prompt)
        assert furthest(node.state(300), reference.state(prompt)) < CLOSE
        node.receiver.release(held)
        assert await asyncio.gather(*general) == alone
    await idle(server)


@pytest.mark.contract("H2", "H3")
async def test_a_preempted_prompt_arrives_whole(server, model, reference) -> None:  # type: ignore[no-untyped-def]
    """The only slot is taken, so the handoff still waits while growing replies take the prompt's blocks."""
    async with decode_node(model) as node:
        first = await node.handed(server, "first", random_prompt(20, seed=11))
        prompts = [random_prompt(60, seed=20 + n) for n in range(4)]
        general = [asyncio.create_task(asyncio.to_thread(server.complete, p, None, 200)) for p in prompts]
        await asyncio.sleep(0.1)
        prompt = random_prompt(600, seed=12)
        replied = asyncio.create_task(asyncio.to_thread(server.complete, prompt, node.params("second"), 300))
        await asyncio.gather(*general, replied)
        record = node.receiver._admission.open["second"]
        assert server.metric("vllm:num_preemptions_total") > 0 and record.writings[0].offer.round > 0
        node.slot[:] = 0xFF
        node.receiver.release(first)
        held = await node.receiver.committed("second", 20)
        assert furthest(node.state(600), reference.state(prompt)) < CLOSE
        node.receiver.release(held)
    await idle(server)


@pytest.mark.contract("H5", "H6")
async def test_blocks_come_back_from_an_unreachable_decode_node_and_from_a_client_that_leaves(
    server: VllmServer, model: Path
) -> None:
    params = {"tilert_host": "127.0.0.1", "tilert_ctrl_port": 9, "tilert_handoff": "nobody"}
    assert len(await asyncio.to_thread(server.complete, random_prompt(200, seed=3), params)) == 1
    await idle(server)
    async with decode_node(model) as node:
        body = {"model": "m", "prompt": random_prompt(600, seed=4), "max_tokens": 1}
        body["kv_transfer_params"] = node.params("left")
        client = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        client.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        while node.receiver.status()["open"] != {"writing": 1}:
            await asyncio.sleep(0.002)
        client.close()
        with contextlib.suppress(HandoffFailed):  # it may have committed just before
            node.receiver.release(await node.receiver.committed("left", 10))
        assert sum(node.receiver.status()["ended"].values()) == 1
        await idle(server)
        held = await node.handed(server, "next", random_prompt(33, seed=5))
        node.receiver.release(held)


@pytest.mark.contract("H5", "H6")
@pytest.mark.soak
async def test_clients_that_leave_at_any_moment(server: VllmServer, model: Path) -> None:
    """Queued, between chunks, preempted, while blocks wait for the one slot, or after all is done; six at a time."""
    source, room, left = random.Random(0), asyncio.Semaphore(6), []
    prompt = random_prompt(50, seed=40)
    alone = await asyncio.to_thread(server.complete, prompt, None, 16)
    async with decode_node(model) as node:

        async def client(number: int, tokens: int, after: float, reply: int) -> None:
            async with room:
                handoff = f"client {number}"
                params = node.params(handoff) if number % 3 else None
                left.append(await leave(server, random_prompt(tokens, number), params, after, reply))
                await asyncio.sleep(min(after, 0.3))
                await node.receiver.cancel(handoff, "its client has left")

        patience = [20.0 if source.random() < 0.2 else source.expovariate(8) for _ in range(CLIENTS)]
        lots = [(n, source.randint(1, 700), patience[n], source.choice((1, 1, 200))) for n in range(CLIENTS)]
        await asyncio.gather(*(client(*lot) for lot in lots))
        assert 0.2 * CLIENTS < sum(left) < CLIENTS, "neither all nor none should leave early"
        await idle(server)
        assert (node.receiver.status()["open"], node.receiver.status()["slots_held"]) == ({}, {})
        held = await node.handed(server, "after", prompt)
        assert held.tokens == 50
        node.receiver.release(held)
    assert await asyncio.to_thread(server.complete, prompt, None, 16) == alone
    assert server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0
    await idle(server)
