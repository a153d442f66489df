"""Chats with a parser: which steps become chunks, what is hidden, and why a reply ends (R8)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from router import RouterConfig
from router.body import look
from router.errors import Unable
from router.fake import FakeParser
from router.logprobs import TokenLogprob
from router.parsers import Parsers, ReplyParser
from router.rendered import Rendered
from router.reply import ChatReply, Form, Names
from router.transcript import Delta
from router.vocabulary import Vocabulary
from tests.router.stack import CHAT, Open

pytestmark = pytest.mark.contract("R8", "R1")

STEPS = [
    Delta("so", [40], logprobs=[TokenLogprob(40, -0.5, [])]),
    Delta("|", [41], logprobs=[TokenLogprob(41, -0.5, [])]),
    Delta("f()", [42], logprobs=[TokenLogprob(42, -0.5, [])]),
    Delta("", [2], "stop", None, [TokenLogprob(2, -0.5, [])]),
]


def form(parser: ReplyParser, vocabulary: Vocabulary | None = None, **given: Any) -> Form:
    names = None if vocabulary is None else Names(vocabulary, 0, as_ids=True)
    return Form(id="x", model="tiny", created=0, fingerprint="f", prompt=[9], parser=parser, names=names, **given)


def chunks(parser: ReplyParser, **given: Any) -> list[dict[str, Any]]:
    reply = ChatReply(form(parser, **given))
    pieces = [reply.chunk(step, number) for number, step in enumerate(STEPS, 1)] + [reply.end(len(STEPS))]
    events = b"".join(pieces).decode().split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events if event and "[DONE]" not in event]


def choices(parser: ReplyParser, **given: Any) -> list[Any]:
    return [each["choices"][0] for each in chunks(parser, **given) if each["choices"]]


def test_a_step_that_shows_nothing_is_no_chunk_unless_it_ends_the_reply() -> None:
    found = choices(FakeParser())
    assert [each["delta"] for each in found] == [{"reasoning": "so"}, {"content": "f()"}, {}]
    assert [each["finish_reason"] for each in found] == [None, None, "tool_calls"]


def test_every_step_is_a_chunk_where_ids_or_logprobs_are_shown(model_dir: Path) -> None:
    for given in ({"show_ids": True}, {"vocabulary": Vocabulary(model_dir)}):
        assert len(choices(FakeParser(), **given)) == len(STEPS)


def test_hidden_reasoning_is_shown_by_nothing(model_dir: Path) -> None:
    found = choices(FakeParser(hidden=True), vocabulary=Vocabulary(model_dir), show_ids=True)
    assert [each["delta"] for each in found] == [{"content": "f()"}, {}]
    assert all(each["logprobs"] is None and each["token_ids"] is None for each in found)
    reply = ChatReply(form(FakeParser(hidden=True), Vocabulary(model_dir), show_ids=True))
    [choice] = json.loads(reply.whole(STEPS))["choices"]
    assert choice["message"]["reasoning"] is None and choice["logprobs"] is None and choice["token_ids"] is None


@pytest.mark.parametrize("reasons", [True, False])
def test_usage_counts_reasoning_where_the_server_does(reasons: bool) -> None:
    *_, last = chunks(FakeParser(reasons=reasons), usage=True, running_usage=True)
    assert last["usage"].get("completion_tokens_details") == ({"reasoning_tokens": 2} if reasons else None)
    body = json.loads(ChatReply(form(FakeParser(reasons=reasons))).whole(STEPS))
    assert body["usage"]["completion_tokens_details"] == ({"reasoning_tokens": 2} if reasons else None)
    assert body["choices"][0]["finish_reason"] == "tool_calls"


async def test_without_the_extra_chats_go_to_the_native_pool(open_stack: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    for name in [each for each in sys.modules if each.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    stack = await open_stack(tool_parser="hermes", enable_auto_tool_choice=True)
    async with stack.ask(CHAT) as reply:
        assert reply.headers["x-speedtier-fallback"] == "tool_parser"
    assert (await stack.whole("/v1/completions", max_tokens=2))["choices"][0]["text"]


async def test_a_request_is_only_parsed_where_a_parser_is_named(model_dir: Path) -> None:
    rendered = Rendered(request_id="r", token_ids=[40], sampling_params={})
    for config in (RouterConfig(), RouterConfig(tool_parser="hermes")):  # the latter without auto tool choice
        parsers = Parsers(config)
        assert parsers.names == frozenset()
        assert await parsers.open(look(b"{}"), rendered, Vocabulary(model_dir)) is None


async def test_tools_are_executed_where_there_is_a_tool_parser() -> None:
    from router.fields import unable

    body = look(b'{"tools": [{}], "tool_choice": "auto", "include_reasoning": false}')
    assert unable(body) == "tools"
    assert unable(body, frozenset({"tool"})) == "include_reasoning"
    assert unable(body, frozenset({"tool", "reasoning"})) is None
    with pytest.raises(Unable, match="reasoning_parser"):
        Parsers(RouterConfig()).check(
            Rendered(request_id="r", token_ids=[1], sampling_params={}, reasoning_parser_kwargs={})
        )
