"""Every request field is executed, neutral, or sends its request to the native pool (R1, R9)."""

from typing import Any

import pytest

from router.config import TrafficClass
from router.fake import FakeDecode, FakePrefill
from router.fields.rules import NEUTRAL, PARSED_NEUTRAL
from tests.router.stack import CHAT, COMPLETIONS, Open

pytestmark = pytest.mark.contract("R1", "R9")

ELSEWHERE: list[tuple[str, str, Any]] = [
    (CHAT, "logprobs", True),
    (CHAT, "kv_transfer", 1),
    (CHAT, "n", 2),
    (CHAT, "tools", [{"type": "function", "function": {"name": "f"}}]),
    (CHAT, "tool_choice", "auto"),
    (CHAT, "response_format", {"type": "json_object"}),
    (CHAT, "structured_outputs", {"regex": "a"}),
    (CHAT, "presence_penalty", 0.1),
    (CHAT, "frequency_penalty", -0.1),
    (CHAT, "repetition_penalty", 1.1),
    (CHAT, "logit_bias", {"1": 2}),
    (CHAT, "min_tokens", 3),
    (CHAT, "echo", True),
    (CHAT, "prompt_logprobs", 0),
    (CHAT, "bad_words", ["x"]),
    (CHAT, "allowed_token_ids", [1]),
    (CHAT, "use_beam_search", True),
    (CHAT, "include_reasoning", False),
    (CHAT, "return_prompt_text", True),
    (CHAT, "stream_interval", 5),
    (CHAT, "vllm_xargs", {"a": 1}),
    (CHAT, "return_tokens_as_token_ids", "yes"),
    (CHAT, "a_field_of_tomorrow", 1),
    (CHAT, "stop_token_ids", list(range(10, 240))),
    (CHAT, "return_token_ids", 1),
    (COMPLETIONS, "logprobs", 0),
    (COMPLETIONS, "logprobs", 5),
    (COMPLETIONS, "echo", True),
    (COMPLETIONS, "best_of", 2),
    (COMPLETIONS, "suffix", "x"),
    (COMPLETIONS, "prompt", ["a", "b"]),
    (COMPLETIONS, "prompt", [[1], [2]]),
]


@pytest.mark.parametrize(("path", "field", "value"), ELSEWHERE)
async def test_what_the_speed_tier_cannot_do_goes_to_the_native_pool(
    open_stack: Open, path: str, field: str, value: Any
) -> None:
    stack = await open_stack()
    async with stack.ask(path, **{field: value}) as reply:
        assert (reply.status, await reply.json()) == (200, {"native": True})
        assert reply.headers["x-speedtier-class"] == "native"
        assert reply.headers["x-speedtier-fallback"] == field
    assert stack.decode.orders == [] and len(stack.prefill.native_seen) == 1


async def test_null_and_neutral_values_stay(open_stack: Open) -> None:
    stack = await open_stack()
    fields = {name: values[0] for name, values in {**NEUTRAL, **PARSED_NEUTRAL}.items()}
    nulls = dict.fromkeys(name for _, name, _ in ELSEWHERE if name not in {*fields, "prompt"})
    async with stack.ask(max_tokens=2, **fields, **nulls) as reply:
        assert reply.headers["x-speedtier-class"] == "speed", reply.headers
    assert len(stack.decode.orders) == 1


async def test_defaults_of_the_model_count_as_well(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir, defaults={"repetition_penalty": 1.05}))
    async with stack.ask() as reply:
        assert reply.headers["x-speedtier-fallback"] == "repetition_penalty"


@pytest.mark.parametrize(("field", "value"), [("min_p", 0.1), ("seed", 3), ("top_k", 5), ("ignore_eos", True)])
async def test_what_a_node_does_not_list_it_is_not_asked_for(open_stack: Open, field: str, value: Any) -> None:
    stack = await open_stack(nodes=[FakeDecode(sampling=["temperature"])])
    async with stack.ask(**{field: value}) as reply:
        assert reply.headers["x-speedtier-fallback"] == field
    async with stack.ask(max_tokens=3) as reply:
        assert reply.headers["x-speedtier-class"] == "speed"


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"reasoning_parser_kwargs": {"chat_template_kwargs": {}}}, "reasoning_parser"),
        ({"features": {"mm_hashes": {}}}, "messages"),
    ],
)
async def test_what_only_rendering_shows(open_stack: Open, model_dir, extra: Any, says: str) -> None:
    stack = await open_stack(FakePrefill(model_dir, extra=extra))
    async with stack.ask() as reply:
        assert reply.headers["x-speedtier-fallback"] == says


async def test_adapters_are_not_decoded_with_the_base_weights(open_stack: Open, model_dir) -> None:
    base = {"id": "tiny", "root": str(model_dir), "parent": None}
    adapter = {"id": "tuned", "root": "adapters/tuned", "parent": "tiny"}
    stack = await open_stack(FakePrefill(model_dir, cards=[base, adapter]))
    async with stack.ask(model="tuned") as reply:
        assert reply.headers["x-speedtier-fallback"] == "model"
    async with stack.ask(model=None, max_tokens=2) as reply:
        assert reply.headers["x-speedtier-class"] == "speed"


async def test_without_a_fallback_the_field_is_refused_by_name(open_stack: Open) -> None:
    only = (TrafficClass(name="speed", pool="speed", fallback="none"),)
    stack = await open_stack(classes=only, default_class="speed")
    async with stack.ask(headers={"x-other": "1"}, logprobs=True) as reply:
        error = (await reply.json())["error"]
        assert reply.status == 501 and error["param"] == "logprobs"
    stack = await open_stack(native=())
    async with stack.ask(n=2) as reply:
        assert reply.status == 501
    assert stack.prefill.native_seen == []


async def test_a_field_name_cannot_break_a_header(open_stack: Open) -> None:
    stack = await open_stack()
    async with stack.ask(**{"a\r\nset-cookie: b": 1}) as reply:
        assert reply.status == 200 and "set-cookie" not in reply.headers
        assert reply.headers["x-speedtier-fallback"] == "a??set-cookie??b"


async def test_fields_without_effect_are_no_reason_to_fall_back(open_stack: Open) -> None:
    stack = await open_stack()
    async with stack.ask(user="u", metadata={"a": "b"}, store=True, max_tokens=2) as reply:
        assert reply.headers["x-speedtier-class"] == "speed"
