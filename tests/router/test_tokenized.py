"""Prefill servers without the scale-out endpoints (R1, R8): prompts by /tokenize, the first token by completions."""

import json
from pathlib import Path
from typing import Any

import pytest

from router.fake import FakePrefill
from tests.router.stack import CHAT, COMPLETIONS, Open, Stack

pytestmark = pytest.mark.contract("R1", "R8")


@pytest.fixture
def plain(model_dir: Path) -> FakePrefill:
    return FakePrefill(model_dir, render_fault="disabled", generate_fault="disabled")


def spoken(stack: Stack) -> list[str]:
    return [path for path in stack.prefill.calls if path != "/v1/models"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("fault", ["disabled", "missing"])
async def test_replies_are_those_of_a_server_with_them(
    open_stack: Open, model_dir: Path, path: str, fault: Any
) -> None:
    with_them = await open_stack()
    without = await open_stack(FakePrefill(model_dir, render_fault=fault, generate_fault=fault))
    asked: dict[str, Any] = {"max_tokens": 4, "return_token_ids": True, "request_id": "mine"}
    one, other = [await stack.whole(path, **asked) for stack in (with_them, without)]
    for reply in (one, other):
        for name in ("created", "id"):
            reply.pop(name)
    assert one == other
    assert with_them.decode.orders[0]["sampling"] == without.decode.orders[0]["sampling"]


async def test_the_server_is_asked_once_and_remembered(open_stack: Open, plain: FakePrefill) -> None:
    stack = await open_stack(plain)
    for _ in range(2):
        await stack.whole(max_tokens=3)
    again = ["/tokenize", COMPLETIONS]
    assert spoken(stack) == [f"{CHAT}/render", *again, *again]


async def test_token_ids_need_no_tokenizing(open_stack: Open, plain: FakePrefill) -> None:
    stack = await open_stack(plain)
    await stack.whole(COMPLETIONS, prompt=[40, 41, 42], max_tokens=2)
    assert "/tokenize" not in stack.prefill.calls
    assert stack.prefill.generated[0]["prompt"] == [40, 41, 42]


async def test_defaults_of_the_model_are_those_of_both_legs(open_stack: Open, model_dir: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    config = {"eos_token_id": [2, 0], "temperature": 0.6, "top_k": 20, "max_new_tokens": 5}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    stack = await open_stack(FakePrefill(tmp_path, render_fault="disabled", generate_fault="disabled"))
    reply = await stack.whole(temperature=None)
    [order], [generated] = stack.decode.orders, stack.prefill.generated
    for leg in (order["sampling"], generated):
        assert (leg["temperature"], leg["top_k"]) == (0.6, 20)
    assert reply["usage"]["completion_tokens"] <= 5 and order["max_tokens"] == 4
    # What the model leaves alone is spelt out where vLLM would look for a default.
    assert (generated["top_p"], generated["repetition_penalty"]) == (1.0, 1.0)


async def test_what_only_render_can_say_goes_to_the_native_pool(open_stack: Open, plain: FakePrefill) -> None:
    stack = await open_stack(plain)
    cases: list[tuple[str, dict[str, Any], str]] = [
        (CHAT, {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 10**6}, "max_completion_tokens"),
        (CHAT, {"temperature": "hot"}, "temperature"),
        (CHAT, {"stop": [""]}, "stop"),
        (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
        (CHAT, {"logprobs": 1}, "logprobs"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": [40] * 600}, "prompt"),
        (COMPLETIONS, {"max_tokens": True}, "max_tokens"),
    ]
    for path, fields, says in cases:
        async with stack.ask(path, **fields) as reply:
            assert reply.headers.get("x-speedtier-fallback") == says, (fields, await reply.text())
    assert stack.decode.orders == []


async def test_words_of_the_tokenize_endpoint_reach_no_client(open_stack: Open, plain: FakePrefill) -> None:
    plain.tokenize_fault = "refuse"
    stack = await open_stack(plain)
    async with stack.ask(CHAT) as reply:
        assert reply.headers["x-speedtier-fallback"] == "messages"


async def test_a_server_that_comes_back_is_asked_again(open_stack: Open, plain: FakePrefill) -> None:
    stack = await open_stack(plain)
    await stack.whole(max_tokens=2)
    plain.tokenize_fault = "die"
    async with stack.ask(CHAT, max_tokens=2) as reply:
        await reply.read()
    plain.tokenize_fault = plain.render_fault = plain.generate_fault = ""
    plain.calls.clear()
    await stack.whole(max_tokens=2)
    assert f"{CHAT}/render" in plain.calls and "/tokenize" not in plain.calls


async def test_the_chat_template_gets_what_tokenize_has_no_field_for(open_stack: Open, plain: FakePrefill) -> None:
    stack = await open_stack(plain)
    await stack.whole(reasoning_effort="low", chat_template_kwargs={"a": 1}, documents=[{"text": "b"}], max_tokens=2)
    [order] = stack.prefill.tokenized
    kwargs = {"a": 1, "reasoning_effort": "low", "enable_thinking": True, "documents": [{"text": "b"}]}
    assert order["chat_template_kwargs"] == kwargs
