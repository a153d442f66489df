"""Replies against vLLM's own serving classes, step by step (R8): any tokens, any cuts, any parser."""

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from router import RouterConfig
from router.body import look
from router.detokenizer import Detokenizer
from router.errors import Unable
from router.logprobs import TokenLogprob
from router.parsers import Parsers
from router.rendered import Rendered
from router.reply import ChatReply, CompletionReply, Form, Names
from router.transcript import Delta, Transcript
from router.vocabulary import Vocabulary
from tests.router.matrix.cases import TOOLS
from tests.router.matrix.model import GOES, Model
from tests.router.matrix.pair import plain, same
from tests.router.matrix.serving import Serving

pytestmark = [pytest.mark.contract("R8"), pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SOAK = "SPEEDTIER_SOAK_S" in os.environ
BASE = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}
NAMED = {"type": "function", "function": {"name": "lookup"}}
USAGE: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
]
ASKED: list[dict[str, Any]] = [
    {},
    {"logprobs": True, "top_logprobs": 4},
    {"return_token_ids": True},
    {"tools": TOOLS},
    {"tools": TOOLS, "tool_choice": "none"},
    {"tools": TOOLS, "tool_choice": "required"},
    {"tools": TOOLS, "tool_choice": NAMED},
    {"tools": TOOLS, "parallel_tool_calls": False},
    {"tools": TOOLS, "include_reasoning": False, "return_token_ids": True, "logprobs": True},
    {"tools": TOOLS, "return_token_ids": True},
    {"tools": TOOLS, "logprobs": True, "top_logprobs": 2},
    {"chat_template_kwargs": {"enable_thinking": False}, "tools": TOOLS},
    {"reasoning_effort": "none", "tools": TOOLS},
]
PARSERS = [("", ""), ("deepseek_r1", "hermes"), ("", "hermes"), ("qwen3", "qwen3_coder"), ("deepseek_r1", "")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    pytest.importorskip("vllm")
    return Model(tmp_path_factory.mktemp("scripted") / "model")


def steps(model: Model, vocabulary: Vocabulary, prompt: list[int], cut: random.Random, **given: Any) -> list[Delta]:
    """A reply to `prompt` in steps of random lengths."""
    detokenizer = Detokenizer(vocabulary, prompt, skip_special=False, stop=given.get("stop", ()))
    longest = given.get("max_tokens", 36)
    transcript = Transcript(detokenizer, eos=[2], stops=[0], max_tokens=longest, keep_stop=False)
    ids, told = model.walk(prompt[-1])[:40], model.accounts(prompt[-1])
    found: list[Delta] = []
    while not found or found[-1].finish_reason is None:
        at = transcript.count
        some = ids[at : at + cut.choice([1, 1, 1, 2, 3])]
        logprobs = [TokenLogprob(token, *told[at + number][::2]) for number, token in enumerate(some)]
        found.append(transcript.feed(some, logprobs=logprobs))
    return found


def said(reply: Any, body: dict[str, Any], deltas: list[Delta]) -> Any:
    """What the router sends."""
    if not body.get("stream"):
        return plain(reply.whole(deltas).decode(), False)
    pieces, count = [reply.begin()], 0
    for delta in deltas:
        count += len(delta.ids)
        pieces.append(reply.chunk(delta, count))
    return plain(b"".join([*pieces, reply.end(count)]).decode(), True)


def form(body: dict[str, Any], prompt: list[int], vocabulary: Vocabulary, top: int | None, **more: Any) -> Form:
    options = body.get("stream_options") or {}
    as_ids = bool(body.get("return_tokens_as_token_ids"))
    return Form(
        id=more.pop("id"),
        model="tiny",
        created=0,
        fingerprint="speedtier",
        prompt=prompt,
        usage=bool(options),
        running_usage="continuous_usage_stats" in options,
        show_ids=bool(body.get("return_token_ids")),
        names=None if top is None else Names(vocabulary, top, as_ids=as_ids),
        **more,
    )


def prompts(model: Model) -> Iterator[list[int]]:
    for go in GOES:
        yield [40, *model.ids(go)]
        yield [*model.ids("<think>"), 40, *model.ids(go)]
        yield [*model.ids("<think></think>"), *model.ids(go)]


@pytest.mark.parametrize(("reasoning", "tool"), PARSERS)
async def test_chats_are_formatted_as_vllm_does_it(model: Model, reasoning: str, tool: str) -> None:
    vocabulary, serving = Vocabulary(model.directory), Serving(model.directory, reasoning, tool)
    parsers = Parsers(RouterConfig(reasoning_parser=reasoning, tool_parser=tool, enable_auto_tool_choice=bool(tool)))
    cut, wrong = random.Random(3), []
    for prompt in prompts(model):
        for asked in ASKED:
            if "tools" in asked and not tool:
                continue
            # Few replies call twice, so of those that may not each way is tried.
            for way in USAGE if SOAK or "parallel_tool_calls" in asked else [cut.choice(USAGE)]:
                body = {**BASE, **asked, **way}
                more = cut.choice([{}, {}, {"max_tokens": cut.randrange(1, 20)}, {"stop": ["京 x"]}])
                deltas = steps(model, vocabulary, prompt, cut, **more)
                kwargs = serving.kwargs(serving.adjusted(body))
                rendered = Rendered(
                    request_id="chatcmpl-r1",
                    token_ids=prompt,
                    sampling_params={},
                    reasoning_parser_kwargs={"chat_template_kwargs": kwargs} if reasoning else None,
                )
                parser = await parsers.open(look(json.dumps(body).encode()), rendered, vocabulary)
                top = body.get("top_logprobs", 0) if body.get("logprobs") else None
                reply = ChatReply(form(body, prompt, vocabulary, top, parser=parser, id="chatcmpl-r1"))
                ours = said(reply, body, deltas)
                theirs = plain(await serving.chat_reply(body, prompt, deltas), bool(body.get("stream")))
                if not same(ours, theirs):
                    wrong.append((prompt, body, ours, theirs))
    assert wrong == []


async def test_completions_are_formatted_as_vllm_does_it(model: Model) -> None:
    vocabulary, serving = Vocabulary(model.directory), Serving(model.directory)
    cut, wrong = random.Random(4), []
    asked: list[dict[str, Any]] = [{}, {"return_token_ids": True}, *({"logprobs": count} for count in range(6))]
    asked.append({"logprobs": 2, "return_tokens_as_token_ids": True})
    for first in range(3, 400, 20):
        prompt = [40, first]
        for more in asked:
            for way in USAGE if SOAK else [cut.choice(USAGE)]:
                body = {"model": "tiny", "prompt": prompt, **more, **way}
                deltas = steps(model, vocabulary, prompt, cut)
                reply = CompletionReply(form(body, prompt, vocabulary, body.get("logprobs"), id="cmpl-r1"))
                ours = said(reply, body, deltas)
                theirs = plain(await serving.completion_reply(body, prompt, deltas), bool(body.get("stream")))
                if not same(ours, theirs):
                    wrong.append((body, ours, theirs))
    assert wrong == []


async def test_a_parser_that_vllm_does_not_have_sends_chats_to_the_native_pool(model: Model) -> None:
    parsers = Parsers(RouterConfig(reasoning_parser="nonsense"))
    rendered = Rendered(request_id="r", token_ids=[40], sampling_params={}, reasoning_parser_kwargs={})
    with pytest.raises(Unable, match="reasoning_parser"):
        await parsers.open(look(json.dumps(BASE).encode()), rendered, Vocabulary(model.directory))


def test_a_server_that_parses_and_a_router_that_does_not_are_told_apart() -> None:
    told = Rendered(request_id="r", token_ids=[40], sampling_params={}, reasoning_parser_kwargs={})
    silent = msgspec.structs.replace(told, reasoning_parser_kwargs=None)
    with_one, without = Parsers(RouterConfig(reasoning_parser="qwen3")), Parsers(RouterConfig())
    with_one.check(told)
    without.check(silent)
    for parsers, rendered in ((with_one, silent), (without, told)):
        with pytest.raises(Unable, match="reasoning_parser"):
            parsers.check(rendered)
    with_one.check(msgspec.structs.replace(silent, tokenized=True))
