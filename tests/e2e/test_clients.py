"""The clients that people use, unmodified, against a real router over a real vLLM and a real decode node: OpenAI's,
blocking and not, Anthropic's, and vLLM's own `bench serve`, in both traffic classes.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from deploy.up import Deployment, UpConfig, VllmConfig
from tests.e2e.serving import Client, stack

SOAK = "SPEEDTIER_SOAK_S" in os.environ
NAME = "tiny-gqa"
TIERS = ("speed", "native")
SAID = [{"role": "user", "content": "Tell me of the sea"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"word": {"enum": ["a", "b"]}}, "required": ["word"]},
    },
}
BENCHES = [("openai-chat", "/v1/chat/completions", "speed")]
if SOAK:
    BENCHES += [
        ("openai-chat", "/v1/chat/completions", "native"),
        ("openai", "/v1/completions", "speed"),
        ("openai", "/v1/completions", "native"),
    ]
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.contract("R8", "R10"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]
Up = tuple[Deployment, Client]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    parsing = VllmConfig(arguments=("--enable-auto-tool-choice", "--tool-call-parser", "hermes"))
    async with stack(tmp_path_factory.mktemp("stack"), UpConfig(model=NAME, vllm=parsing)) as (plan, client, _):
        yield plan, client


def _ours(url: str, tier: str) -> dict[str, Any]:
    return {"base_url": url + "/v1", "api_key": "any", "default_headers": {"x-traffic-class": tier}, "max_retries": 0}


def _openai_sync(url: str, tier: str) -> list[str]:
    """Texts of a chat and a completion, each whole and streamed."""
    ask: dict[str, Any] = {"model": NAME, "temperature": 0, "max_tokens": 12}
    with openai.OpenAI(**_ours(url, tier)) as client:
        assert NAME in [model.id for model in client.models.list()]
        chat = client.chat.completions.create(messages=SAID, **ask)  # type: ignore[call-overload]
        assert chat.usage.completion_tokens == 12 and chat.choices[0].finish_reason == "length"
        chunks = list(
            client.chat.completions.create(  # type: ignore[call-overload]
                messages=SAID, stream=True, stream_options={"include_usage": True}, **ask
            )
        )
        assert chunks[-1].usage.completion_tokens == 12
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
        text = client.completions.create(prompt="Once upon", **ask)
        pieces = "".join(
            each.choices[0].text for each in client.completions.create(prompt="Once upon", stream=True, **ask)
        )
        return [chat.choices[0].message.content, streamed, text.choices[0].text, pieces]


async def test_openai_sync(up: Up) -> None:
    plan, _ = up
    said = [await asyncio.to_thread(_openai_sync, plan.router_url, tier) for tier in TIERS]
    chat, streamed, text, pieces = said[0]
    assert chat and text and (chat, text) == (streamed, pieces)
    assert said[0] == said[1], "the tiers write the same"


async def _with_tools(url: str, tier: str) -> list[Any]:
    """Replies to a named tool, a required one and none, as the client reads them, without the ids of calls."""
    said: list[Any] = []
    async with openai.AsyncOpenAI(**_ours(url, tier)) as client:
        for choice in ({"type": "function", "function": {"name": "look_up"}}, "required", "none"):
            reply = await client.chat.completions.create(
                model=NAME, messages=SAID, tools=[TOOL], tool_choice=choice, temperature=0, max_tokens=40,  # type: ignore[arg-type, list-item]
            )  # fmt: skip
            message = reply.choices[0].message
            calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]  # type: ignore[union-attr]
            said.append((message.content, calls, reply.choices[0].finish_reason))
    assert said[2][0], "without tools it writes"
    return said


@pytest.mark.parametrize("tier", TIERS)
async def test_openai_async(up: Up, tier: str) -> None:
    plan, _ = up
    async with openai.AsyncOpenAI(**_ours(plan.router_url, tier)) as client:

        async def one(number: int) -> int:
            stream = await client.chat.completions.create(
                model=NAME, messages=[{"role": "user", "content": f"{number}"}], max_tokens=9 + number, stream=True,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )  # fmt: skip
            choices = [choice async for chunk in stream for choice in chunk.choices]
            return sum(len(getattr(choice, "token_ids", None) or ()) for choice in choices)

        assert await asyncio.gather(*(one(number) for number in range(4))) == [9, 10, 11, 12]
    assert await _with_tools(plan.router_url, tier) == await _with_tools(plan.vllm_url, tier)


@pytest.mark.parametrize("tier", TIERS)
async def test_errors_are_the_ones_that_the_client_knows(up: Up, tier: str) -> None:
    plan, _ = up
    async with openai.AsyncOpenAI(**_ours(plan.router_url, tier)) as client:
        chat = client.chat.completions
        with pytest.raises(openai.BadRequestError) as refused:
            await chat.create(model=NAME, messages=SAID, temperature=-1)  # type: ignore[arg-type]
        assert refused.value.request_id, "by which the request is found in the log"
        with pytest.raises(openai.NotFoundError):
            await chat.create(model="nobody", messages=SAID)  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError, match="kv_transfer_params"):
            await chat.create(model=NAME, messages=SAID, extra_body={"kv_transfer_params": {}})  # type: ignore[arg-type]
        with pytest.raises(openai.NotFoundError, match="operators"):
            await client.post("/load_lora_adapter", cast_to=object, body={})


async def test_anthropic(up: Up) -> None:
    plan, _ = up
    async with anthropic.AsyncAnthropic(base_url=plan.router_url, api_key="any", max_retries=0) as client:
        ask: dict[str, Any] = {"model": NAME, "max_tokens": 12, "messages": SAID, "extra_body": {"temperature": 0}}
        whole = await client.messages.create(**ask)
        assert (whole.usage.output_tokens, whole.stop_reason) == (12, "max_tokens")
        async with client.messages.stream(**ask) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        assert text == "".join(block.text for block in whole.content if block.type == "text") and text
        count = await client.messages.count_tokens(model=NAME, messages=SAID)  # type: ignore[arg-type]
        assert count.input_tokens == whole.usage.input_tokens
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(**{**ask, "messages": "none"})


def _bench(plan: Deployment, directory: Path, backend: str, path: str, tier: str) -> Sequence[str]:
    settings = {
        "backend": backend,
        "base-url": plan.router_url,
        "endpoint": path,
        "model": NAME,
        "tokenizer": str(plan.model),
        "dataset-name": "random",
        "random-input-len": "24",
        "random-output-len": "8",
        "num-prompts": "6",
        "max-concurrency": "2",
        "header": f"x-traffic-class={tier}",
        "result-dir": str(directory),
        "result-filename": "bench.json",
    }
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return ("bench", "serve", *options, "--ignore-eos", "--save-result", "--disable-tqdm")


@pytest.mark.soak
@pytest.mark.parametrize(("backend", "path", "tier"), BENCHES)
async def test_bench_serve(up: Up, tmp_path: Path, backend: str, path: str, tier: str) -> None:
    plan, client = up
    # The command asks for its distribution's version by a name that the CPU build has not.
    metadata = tmp_path / "vllm-0.32.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", *_bench(plan, tmp_path, backend, path, tier)),
        env={**os.environ, "PYTHONPATH": str(tmp_path), "VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(running.communicate(), 120)
    assert running.returncode == 0, said.decode()[-4000:]
    result = json.loads((tmp_path / "bench.json").read_text())
    assert (result["completed"], result["total_output_tokens"]) == (6, 48)
    async with client.http.get(plan.router_url + "/metrics") as reply:
        lines = [line for line in (await reply.text()).splitlines() if "_requests_total{" in line]
    served = [line for line in lines if f'endpoint="{path}"' in line and f'traffic_class="{tier}"' in line]
    assert any('status="200"' in line and float(line.rpartition(" ")[2]) >= 6 for line in served), lines
