"""Bad input and broken parts, through the real stack: a clear error, and the next request works."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import load_file, save_file

from deploy.checkpoints import ensure
from deploy.processes import free_ports
from deploy.up import UpConfig
from deploy.up.nodes import decode_part, router_part
from tests.e2e.serving import Client, stack

MODEL = "tiny-gqa"
LIMIT = 256
# Errors are told where no other pool may serve the request.
CLASSES = [{"name": "speed", "pool": "speed", "fallback": "none"}, {"name": "native", "pool": "native"}]
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

Parts = dict[str, Any]


def _other_weights(directory: Path) -> Path:
    """The same model with one value changed."""
    shutil.copytree(ensure(MODEL), directory)
    file = directory / "model.safetensors"
    tensors = load_file(file)
    norm = tensors["model.norm.weight"]
    tensors["model.norm.weight"] = np.concatenate([norm[:1] + 1, norm[1:]])
    save_file(tensors, file, {"format": "pt"})
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    """The stack; a second decode node with other weights; a router over it, and one over a node that is down."""
    directory = tmp_path_factory.mktemp("stack")
    config = UpConfig(model=MODEL, decode={"max_tokens": LIMIT}, router={"queue_wait_s": 5, "classes": CLASSES})
    async with stack(directory, config) as (plan, client, running):
        wrong_port, wrong_router, down_port, down_router, twin_router, lenient_router = free_ports(6)
        urls = [plan.vllm_url]
        settings = {"prefill": urls, "native": urls, "tokenizer": str(plan.model), "classes": CLASSES}
        wrong = {"model": str(_other_weights(directory / "other")), "port": wrong_port, "dtype": "float32"}
        over_wrong = {"port": wrong_router, "decode": [{"url": f"http://127.0.0.1:{wrong_port}"}], **settings}
        over_down = {"port": down_router, "decode": [{"url": f"http://127.0.0.1:{down_port}"}], **settings}
        await running.start([decode_part(directory / "wrong", wrong, {}), router_part(directory / "w", over_wrong, {})])
        lenient = {**over_wrong, "port": lenient_router}
        del lenient["classes"]
        await running.start([router_part(directory / "l", lenient, {})])
        twin = {"port": twin_router, "decode": [{"url": plan.decode_url}], **settings}
        await running.start([router_part(directory / "d", over_down, {}), router_part(directory / "t", twin, {})])
        yield {
            "router": client,
            "decode": Client(client.http, plan.decode_url),
            "wrong": Client(client.http, f"http://127.0.0.1:{wrong_router}"),
            "down": Client(client.http, f"http://127.0.0.1:{down_router}"),
            "lenient": Client(client.http, f"http://127.0.0.1:{lenient_router}"),
            "twin": Client(client.http, f"http://127.0.0.1:{twin_router}"),
        }


def _body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": [20, 30, 40], "max_tokens": 4, "temperature": 0, **more}


async def _works(router: Client) -> None:
    """The speed tier still gives what the native tier gives, and holds nothing."""
    one, other = [await router.complete(MODEL, [20, 30, 40], tier, max_tokens=12) for tier in ("speed", "native")]
    assert one["choices"][0]["token_ids"] == other["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        (_body(prompt=[20] * (LIMIT + 1)), 400, str(LIMIT)),
        (_body(max_tokens=LIMIT), 400, str(LIMIT)),
        (_body(max_tokens=0), 400, "max_tokens"),
        (_body(max_tokens=-1), 400, "max_tokens"),
        (_body(max_tokens=10**9), 400, "max_tokens"),
        (_body(prompt=[]), 400, ""),
        (_body(model="nobody"), 404, "nobody"),
        (_body(temperature=-1), 400, "temperature"),
        (_body(top_p=7), 400, "top_p"),
        (_body(temperature=0.9, stop_token_ids=[2**63]), 400, ""),
        (_body(kv_transfer_params={"tilert_host": "127.0.0.1"}), 400, "kv_transfer_params"),
        (b'{"model": "tiny-gqa", "prompt": ', 400, ""),
        (b"[]", 400, ""),
        (b"", 400, ""),
    ],
)
@pytest.mark.contract("R2")
async def test_bad_requests_are_named(parts: Parts, wrong: Any, status: int, said: str) -> None:
    router = parts["router"]
    got, reply, _ = await router.post("/v1/completions", wrong, "speed")
    assert got == status, reply
    assert {"message", "type", "code"} <= set(reply["error"])
    assert said in reply["error"]["message"]
    await _works(router)


@pytest.mark.parametrize("most", [1, 2, 3, LIMIT - 1])
@pytest.mark.parametrize("prompt", [[500], [20, 30, 40]])
async def test_short_prompts_and_replies_equal_native(parts: Parts, prompt: list[int], most: int) -> None:
    most = min(most, LIMIT - len(prompt))
    one, other = [await parts["router"].complete(MODEL, prompt, tier, max_tokens=most) for tier in ("speed", "native")]
    assert one["choices"] == other["choices"]
    assert one["usage"]["completion_tokens"] == other["usage"]["completion_tokens"] == most


@pytest.mark.parametrize("top_k", [2**31, 2**63 - 1, 2**63])
async def test_a_huge_top_k_means_all(parts: Parts, top_k: int) -> None:
    """As vLLM, which clamps it to the vocabulary."""
    body = _body(temperature=0.9, top_k=top_k, seed=5, ignore_eos=True)
    for tier in ("native", "speed"):
        status, reply, headers = await parts["router"].post("/v1/completions", body, tier)
        assert status == 200, (tier, reply)
        assert "x-speedtier-fallback" not in headers
    await _works(parts["router"])


@pytest.mark.contract("H7")
async def test_other_weights_are_refused_by_name(parts: Parts) -> None:
    status, reply, _ = await parts["wrong"].post("/v1/completions", _body(), "speed")
    assert status == 502, reply
    assert "fingerprint" in reply["error"]["message"]
    assert "weights" in reply["error"]["message"]
    await _works(parts["router"])


async def test_other_weights_cost_nobody_a_reply_where_the_class_falls_back(parts: Parts) -> None:
    expected = await parts["router"].complete(MODEL, [20, 30, 40], "native", max_tokens=12)
    status, reply, _ = await parts["lenient"].post("/v1/completions", _body(max_tokens=12, ignore_eos=True), "speed")
    assert status == 200 and reply["choices"][0]["text"] == expected["choices"][0]["text"]


async def test_a_decode_node_that_is_down(parts: Parts) -> None:
    status, reply, _ = await parts["down"].post("/v1/completions", _body(), "speed")
    assert status == 502, reply
    assert "decode node" in reply["error"]["message"]
    assert (await parts["down"].post("/v1/completions", _body(), "native"))[0] == 200
    await _works(parts["router"])


@pytest.mark.contract("R4")
async def test_two_routers_over_one_decode_node_need_no_agreement(parts: Parts) -> None:
    """Neither's requests keep the other's out, though their orders differ."""
    expected = (await parts["router"].complete(MODEL, [20, 30, 40], "native", max_tokens=60))["choices"]
    async with asyncio.timeout(25):
        calls = [
            parts[name].complete(MODEL, [20, 30, 40], "speed", max_tokens=60)
            for _ in range(10)
            for name in ("router", "twin")
        ]
        replies = await asyncio.gather(*calls)
    assert all(reply["choices"] == expected for reply in replies)


@pytest.mark.contract("R5")
@pytest.mark.parametrize("after", [0.0, 0.005, 0.02, 0.05, 0.1])
async def test_a_client_that_goes_away(parts: Parts, after: float) -> None:
    router: Client = parts["router"]
    body = _body(prompt=[20] * 100, max_tokens=150, stream=True, ignore_eos=True)
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(after):
            headers = {"x-traffic-class": "speed"}
            async with router.http.post(router.url + "/v1/completions", json=body, headers=headers) as reply:
                await reply.read()
    async with asyncio.timeout(2):
        while True:
            async with router.http.get(f"{parts['decode'].url}/decode_status") as reply:
                status = await reply.json()
            if not status["busy"] and not status["sessions"] and not status["slots_held"]:
                break
            await asyncio.sleep(0.02)
    await _works(router)
