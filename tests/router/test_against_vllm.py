"""The speed class against the same vLLM's own replies, field for field (R8), with a decode node that replays
its tokens.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from rich.console import Console

from deploy.checkpoints import ensure
from deploy.processes import Stack as Processes
from deploy.processes.ports import free_ports
from deploy.up.config import VllmConfig
from deploy.up.vllm import vllm_part
from router import DecodeNodeConfig, RouterConfig, running
from router.fake import FakeDecode, serving
from tests.router.stack import CHAT, COMPLETIONS, SPEED, until

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.contract("R8", "R2"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
LIMIT = 512


class Pair:
    """A vLLM server, a router before it, and a decode node that replays."""

    def __init__(self, vllm: str, router: str, node: FakeDecode, session: aiohttp.ClientSession) -> None:
        self.vllm, self.router, self.node, self.session = vllm, router, node, session

    async def post(self, base: str, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, ...]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", "x-request-id": "r1", **headers}
        async with self.session.post(base + path, data=raw, headers=headers) as reply:
            events = reply.content_type == "text/event-stream"
            text = await reply.text()
            if base == self.router and reply.status == 200 and headers.get("x-traffic-class"):
                assert "x-speedtier-node" in reply.headers, dict(reply.headers)
            return reply.status, reply.headers["content-type"], _plain(text, events)

    async def both(self, path: str, body: Any) -> tuple[Any, Any]:
        """What vLLM says and what the router's speed class says; chunk by chunk where both had the same chunks."""
        theirs = await self.post(self.vllm, path, body, {})
        ours = await self.post(self.router, path, body, SPEED)
        if theirs != ours and isinstance(theirs[2], list):
            # vLLM joins the tokens that its reader is late for, so on a busy machine the cuts differ.
            theirs, ours = ((*each[:2], _joined(each[2])) for each in (theirs, ours))
            if not (theirs[2]["middle"] and ours[2]["middle"]):
                theirs[2]["middle"] = ours[2]["middle"] = []
        return theirs, ours

    async def learn(self, path: str, body: dict[str, Any]) -> None:
        """Give the node the tokens with which vLLM itself goes on, past any stop."""
        length = body.get("max_tokens", body.get("max_completion_tokens"))
        plain = {"stream": False, "stream_options": None, "stop": None, "stop_token_ids": None, "ignore_eos": True}
        body = {**body, **plain, "return_token_ids": True, "max_tokens": length}
        _, _, reply = await self.post(self.vllm, path, body, {})
        self.node.tokens = reply["choices"][0]["token_ids"][1:]


def _plain(text: str, events: bool) -> Any:
    """A reply without the two values that must differ: when, and by what, it was made."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict) and "created" in value:
            value["created"] = 0
            if isinstance(value.get("system_fingerprint"), str):
                value["system_fingerprint"] = "set"
        return value

    if not events:
        return plain(json.loads(text))
    lines = [each.removeprefix("data: ") for each in text.split("\n\n") if each]
    return [each if each == "[DONE]" else plain(json.loads(each)) for each in lines]


def _joined(events: list[Any]) -> dict[str, Any]:
    """A stream without its cuts: text and ids as one, and every distinct shape of a chunk; those between the first
    and the last apart, for a stream of few tokens may have none."""
    text, ids, shapes, middle = "", [], [], []
    for each in events:
        into = shapes
        if each != "[DONE]" and each["choices"]:
            [choice] = each["choices"]
            part = choice.get("delta", choice)
            for name in ("content", "text"):
                text += part.pop(name, "")
            ids += choice.pop("token_ids", None) or []
            if choice["finish_reason"] is None and "role" not in part:
                each.get("usage", {}).clear()
                into = middle
        if each not in into:
            into.append(each)
    return {"text": text, "ids": ids, "shapes": shapes, "middle": middle}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    model: Path = ensure("tiny-gqa", "float32")
    [port] = free_ports(1)
    flags = ("--enable-scale-out", "--max-model-len", str(LIMIT))
    part = vllm_part(VllmConfig(arguments=flags), model, "tiny", "float32", port, connector=False)
    node = FakeDecode(max_tokens=LIMIT)
    async with Processes(tmp_path_factory.mktemp("vllm"), Console(quiet=True)) as processes:
        await processes.start([part])
        vllm = f"http://127.0.0.1:{port}"
        async with serving(node.app()) as decode:
            nodes = (DecodeNodeConfig(url=decode),)
            config = RouterConfig(port=0, prefill=(vllm,), native=(vllm,), decode=nodes)
            async with running(config) as router, aiohttp.ClientSession() as session:
                yield Pair(vllm, router, node, session)


TALK = [{"role": "user", "content": "Tell me of pages and plans 日本 🎉"}]
PROMPTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": TALK}),
    (COMPLETIONS, {"prompt": "The connector writes pages"}),
    (COMPLETIONS, {"prompt": [40, 41, 200, 201, 177]}),
]
WAYS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
]
MANY_STOP_IDS = list(range(100, 140))
ASKED: list[dict[str, Any]] = [
    {},
    {"max_tokens": 1},
    {"max_tokens": 2},
    {"max_tokens": 3},
    {"stop": ["e"]},
    {"stop": ["in", "to ", "zz"], "max_tokens": 60},
    {"stop": "er", "include_stop_str_in_output": True, "max_tokens": 60},
    {"stop_token_ids": MANY_STOP_IDS, "max_tokens": 60},
    {"stop_token_ids": MANY_STOP_IDS, "include_stop_str_in_output": True, "max_tokens": 60},
    {"return_token_ids": True},
    {"return_token_ids": True, "stop": ["e"], "max_tokens": 40},
    {"skip_special_tokens": False, "max_tokens": 40},
    {"skip_special_tokens": False, "spaces_between_special_tokens": False, "max_tokens": 40},
    {"ignore_eos": True, "max_tokens": 80},
    {"seed": 3, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
    {"user": "x", "metadata": {"a": "b"}, "n": 1, "logprobs": None, "presence_penalty": 0, "tools": None},
]
SINGLE: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": TALK, "add_generation_prompt": False, "stream": True}),
    (CHAT, {"messages": [*TALK, {"role": "assistant", "content": "I"}], "add_generation_prompt": False}),
    (CHAT, {"messages": TALK, "max_tokens": None, "max_completion_tokens": 5, "reasoning_effort": "low"}),
    (CHAT, {"messages": TALK, "truncate_prompt_tokens": 6, "model": None}),
    (CHAT, {"messages": TALK, "max_tokens": None}),
    (COMPLETIONS, {"prompt": "a", "max_tokens": None}),
    (COMPLETIONS, {"prompt": [50] * (LIMIT - 1), "max_tokens": 9}),
]


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    base = {"model": "tiny", "temperature": 0, "max_tokens": 12}
    for path, prompt in PROMPTS:
        for way in WAYS:
            for asked in ASKED:
                yield path, {**base, **prompt, **way, **asked}
    for path, body in SINGLE:
        yield path, {**base, **body}


async def test_replies_are_those_of_vllm(pair: Pair) -> None:
    differing = []
    cases = list(requests())
    for path, body in cases:
        await pair.learn(path, body)
        theirs, ours = await pair.both(path, body)
        assert theirs[0] == 200, theirs
        if theirs != ours:
            differing.append((path, body, theirs, ours))
    assert len(cases) > 190 and differing == []


CHAT_ERRORS: list[dict[str, Any]] = [
    {"max_tokens": 0},
    {"max_tokens": -1},
    {"max_tokens": 10**6},
    {"max_completion_tokens": 10**20},
    {"model": "nope"},
    {"messages": []},
    {"messages": None},
    {"messages": [{"role": "user", "content": "word " * 900}]},
    {"temperature": -1},
    {"temperature": "a"},
    {"top_p": 0},
    {"n": 0},
    {"stop": [""]},
    {"stop_token_ids": [99999]},
    {"stream_options": {"include_usage": True}},
    {"cache_salt": ""},
    {"tools": []},
    {"tool_choice": "auto"},
]
COMPLETION_ERRORS: list[dict[str, Any]] = [
    {"prompt": ""},
    {"prompt": []},
    {"prompt": None},
    {"prompt": [1, 2, 99999]},
    {"prompt": [-1]},
    {"prompt": [50] * LIMIT},
    {"max_tokens": 0},
    {"seed": 2**70},
    {"min_p": 2},
]
RAW: list[bytes] = [b"{nope", b"", b"[1]", b'"x"', b"\xff\xfe"]


async def test_refusals_are_those_of_vllm(pair: Pair) -> None:
    chat = {"model": "tiny", "messages": TALK, "max_tokens": 2}
    bodies: list[tuple[str, Any]] = [(CHAT, {**chat, **fields}) for fields in CHAT_ERRORS]
    completion = {"model": "tiny", "prompt": "a", "max_tokens": 2}
    bodies += [(COMPLETIONS, {**completion, **fields}) for fields in COMPLETION_ERRORS]
    bodies += [(path, raw) for path in (CHAT, COMPLETIONS) for raw in RAW]
    for path, body in bodies:
        theirs, ours = await pair.both(path, body)
        assert 400 <= theirs[0] < 500, (body, theirs)
        assert theirs == ours


async def test_native_replies_are_vllms_own(pair: Pair) -> None:
    body = {"model": "tiny", "messages": TALK, "max_tokens": 5, "temperature": 0, "logprobs": True}
    theirs = await pair.post(pair.vllm, CHAT, body, {})
    assert await pair.post(pair.router, CHAT, body, {}) == theirs


async def test_a_client_that_leaves_ends_the_prefill(pair: Pair) -> None:
    async def running_requests() -> float:
        async with pair.session.get(pair.vllm + "/metrics") as reply:
            lines = (await reply.text()).splitlines()
        found = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    body = {"model": "tiny", "messages": TALK, "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with pair.session.post(pair.router + CHAT, json=body) as reply:
        await reply.content.readany()
        assert await running_requests() == 1
        reply.close()
    state = {"running": 1.0}

    async def watch() -> bool:
        state["running"] = await running_requests()
        return state["running"] == 0

    for _ in range(20):
        if await watch():
            break
    assert state["running"] == 0
    await until(lambda: not pair.node.active)
