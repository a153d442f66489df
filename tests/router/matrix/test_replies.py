"""The speed class against the same vLLM, field for field (R8): hundreds of requests, each with the reason for
which the native pool serves it, if it does (R1).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from rich.console import Console

from deploy.processes import Stack as Processes
from deploy.processes.ports import free_ports
from deploy.up.config import VllmConfig
from deploy.up.nodes import decode_part
from deploy.up.vllm import vllm_part
from router import DecodeNodeConfig, RouterConfig, running
from router.fake import FakeDecode, serving
from router.fake.decode import SAMPLING
from tests.router.matrix.cases import BASES, RAW, REFUSED, TALK, Case, parsed, replies
from tests.router.matrix.closed import closed
from tests.router.matrix.model import LENGTH, Model
from tests.router.matrix.pair import Pair, difference, same
from tests.router.stack import CHAT, COMPLETIONS, until

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.contract("R8", "R2", "R1"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # the router imports vLLM here, whose own warnings are no failure
]
SLOTS = 4
# Fields that `/tokenize` does not know.
UNRENDERED = ("truncate_prompt_tokens", "truncation_side")
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1")


class Pairs(NamedTuple):
    """A server without parsers, the same without scale-out endpoints, one with parsers, the first with a real decode
    node, and what they all say."""

    plain: Pair
    closed: Pair
    parsing: Pair
    real: Pair
    model: Model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pairs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pairs]:
    model = Model(tmp_path_factory.mktemp("scripted") / "model")
    *ports, decode_port = free_ports(3)
    flags = ("--enable-scale-out", "--max-model-len", str(LENGTH))
    parts = []
    for port, more in zip(ports, ((), PARSERS), strict=True):
        config = VllmConfig(arguments=(*flags, *more))
        part = vllm_part(config, model.directory, "tiny", "float32", port, connector=not more)
        parts.append(msgspec.structs.replace(part, name="parsing") if more else part)
    settings = {"model": str(model.directory), "dtype": "float32", "port": decode_port, "max_tokens": LENGTH}
    parts.append(decode_part(tmp_path_factory.mktemp("decode"), {**settings, "slots": SLOTS, "workers": 1}, {}))
    node = FakeDecode(model.walk, model.accounts, slots=SLOTS, max_tokens=LENGTH, sampling=[*SAMPLING, "logprobs"])
    parsers = {"reasoning_parser": "deepseek_r1", "tool_parser": "hermes", "enable_auto_tool_choice": True}
    async with Processes(tmp_path_factory.mktemp("vllm"), Console(quiet=True)) as processes:
        await processes.start(parts)
        async with serving(node.app()) as decode, aiohttp.ClientSession() as session:
            plain, parsing = (f"http://127.0.0.1:{port}" for port in ports)

            def router(vllm: str, node: str = decode, **more: Any) -> AbstractAsyncContextManager[str]:
                given = {"prefill": (vllm,), "native": (vllm,), **more}
                return running(RouterConfig(port=0, decode=(DecodeNodeConfig(url=node),), **given))

            async with (
                serving(closed(plain, session)) as without,
                router(plain) as first,
                router(plain, prefill=(without,)) as second,
                router(parsing, **parsers) as third,
                router(plain, f"http://127.0.0.1:{decode_port}") as fourth,
            ):
                routers = ((plain, first), (plain, second), (parsing, third), (plain, fourth))
                yield Pairs(*(Pair(vllm, url, node, session) for vllm, url in routers), model)


async def differing(pair: Pair, cases: Sequence[Case], at_once: int) -> str:
    """Cases of which the router's answer is another than vLLM's, or falls back for another reason, a line each.

    Those with logprobs run alone: where one request of a batch names `logprob_token_ids`, vLLM's sampler gives all of
    it those, padded with token 0 (vllm/v1/sample/sampler.py, `forward`).
    """
    alone = [case for case in cases if case.body.get("logprobs") is not None]
    rest = [case for case in cases if case.body.get("logprobs") is None]
    return await _differing(pair, rest, at_once) + await _differing(pair, alone, 1)


async def _differing(pair: Pair, cases: Sequence[Case], at_once: int) -> str:
    room = asyncio.Semaphore(at_once)

    async def compare(case: Case) -> Any:
        async with room:
            theirs, ours, fallback = await pair.both(case.path, case.body)
        if theirs[0] != 200:
            return case, "vLLM refuses it", theirs
        if fallback != case.fallback:
            return case, f"it falls back for {fallback}"
        return None if same(theirs, ours) else (case, difference(theirs, ours))

    return "".join(f"{each}\n" for each in await asyncio.gather(*map(compare, cases)) if each is not None)


async def test_replies_are_those_of_vllm(pairs: Pairs) -> None:
    cases = list(replies(pairs.model))
    assert len(cases) > 250
    assert await differing(pairs.plain, cases, SLOTS) == ""


async def test_replies_are_the_same_without_scale_out(pairs: Pairs) -> None:
    """Where prompts are tokenized, and where that sends them to the native pool."""
    cases = [
        case._replace(fallback=case.fallback or next((name for name in UNRENDERED if name in case.body), None))
        for case in replies(pairs.model)
        if len(case.body.get("prompt", "")) < LENGTH - 1  # more is asked for than there is room: vLLM's to answer
        if not case.body.get("stream") or "continuous_usage_stats" in (case.body.get("stream_options") or {})
    ]
    assert len(cases) > 150
    assert await differing(pairs.closed, cases, SLOTS) == ""


async def test_replies_of_the_real_engine_are_those_of_vllm(pairs: Pairs) -> None:
    """Those without logprobs, which the engine does not give yet."""
    cases = [case for case in replies(pairs.model) if case.body.get("logprobs") is None]
    assert sum(case.fallback is None for case in cases) > 150
    assert await differing(pairs.real, cases, SLOTS) == ""


async def test_parsed_replies_are_those_of_vllm(pairs: Pairs) -> None:
    cases = list(parsed())
    assert len(cases) > 80
    assert await differing(pairs.parsing, cases, 1) == ""


async def test_the_scripts_make_vllm_reason_and_call_tools(pairs: Pairs) -> None:
    """Lest the matrix compares nothing but plain texts."""
    seen: set[str] = set()
    for case in list(parsed())[:12]:
        (_, _, body), _ = await pairs.parsing.post(
            pairs.parsing.router,
            case.path,
            {**case.body, "stream": False, "stream_options": None},
            {"x-traffic-class": "speed"},
        )
        [choice] = body["choices"]
        seen |= {name for name in ("reasoning", "content", "tool_calls") if choice["message"].get(name)}
        seen.add(choice["finish_reason"])
    assert seen == {"reasoning", "content", "tool_calls", "stop"}


async def test_refusals_are_those_of_vllm(pairs: Pairs) -> None:
    pair = pairs.plain
    bodies: list[tuple[str, Any]] = [
        (path, {**BASES[path], "max_tokens": 2, **fields}) for paths, fields in REFUSED for path in paths
    ]
    bodies += [(path, raw) for path in (CHAT, COMPLETIONS) for raw in RAW]
    wrong = []
    for path, body in bodies:
        theirs, ours, _ = await pair.both(path, body)
        if not (400 <= theirs[0] < 500 and theirs == ours):
            wrong.append((path, body, theirs, ours))
    assert wrong == []


async def test_native_replies_are_vllms_own(pairs: Pairs) -> None:
    pair = pairs.plain
    body = {"model": "tiny", "messages": TALK, "max_tokens": 5, "temperature": 0, "logprobs": True}
    theirs = await pair.post(pair.vllm, CHAT, body, {})
    assert await pair.post(pair.router, CHAT, body, {}) == theirs


async def test_a_client_that_leaves_ends_the_native_request(pairs: Pairs) -> None:
    pair = pairs.plain

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
    for _ in range(20):
        if not await running_requests():
            break
    else:
        pytest.fail("the request runs on")
    await until(lambda: not pair.node.active)
