"""The requests of the differential matrix, as data.

Invariant: a case says what makes it fall back, or that nothing does; one that is not as it says fails the test.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.router.matrix.model import END, GOES, LENGTH, PAD, Model
from tests.router.stack import CHAT, COMPLETIONS


class Case(NamedTuple):
    """A request, and the reason for which the native pool serves it, as the reply's header gives it."""

    path: str
    body: dict[str, Any]
    fallback: str | None = None


TALK = [{"role": "user", "content": "Tell me of pages and plans 日本 🎉"}]
CHAT_BASE = {"model": "tiny", "temperature": 0, "max_tokens": 12, "messages": TALK}
TEXT_BASE = {"model": "tiny", "temperature": 0, "max_tokens": 12, "prompt": "The connector writes pages"}
BASES = {CHAT: CHAT_BASE, COMPLETIONS: TEXT_BASE}
USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
RUNNING: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
WAYS: list[dict[str, Any]] = [{}, {"stream": True}, USAGE, RUNNING]
MANY_STOP_IDS = list(range(100, 140))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look something up.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "n": {"type": "array", "items": {"type": "integer"}}},
            },
        },
    }
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}

# Asked of both endpoints, in every way.
ASKED: list[dict[str, Any]] = [
    {},
    {"max_tokens": 1},
    {"max_tokens": 2},
    {"max_tokens": 3},
    {"stop": ["e"], "max_tokens": 60},
    {"stop": ["in", "to ", "zz"], "max_tokens": 60},
    {"stop": "er", "include_stop_str_in_output": True, "max_tokens": 60},
    {"stop_token_ids": MANY_STOP_IDS, "max_tokens": 60},
    {"stop_token_ids": MANY_STOP_IDS, "include_stop_str_in_output": True, "max_tokens": 60},
    {"return_token_ids": True, "stop": ["e"], "max_tokens": 40},
    {"skip_special_tokens": False, "spaces_between_special_tokens": False, "max_tokens": 150},
    {"ignore_eos": True, "max_tokens": 150},
    {"max_tokens": 150},
]

# Values of the fields: of which endpoints, the value, and what it makes fall back. Every field of both models of vLLM
# comes up here (tests/router/test_table.py).
BOTH = (CHAT, COMPLETIONS)
FIELDS: list[tuple[tuple[str, ...], str, Any, str | None]] = [
    (BOTH, "model", None, None),
    (BOTH, "seed", 3, None),
    (BOTH, "top_k", 5, None),
    (BOTH, "top_p", 0.9, None),
    (BOTH, "min_p", 0.1, None),
    (BOTH, "user", "x", None),
    (BOTH, "request_id", "mine", None),
    (BOTH, "session_id", "conversation", None),
    (BOTH, "cache_salt", "pepper", None),
    (BOTH, "priority", 0, None),
    (BOTH, "add_special_tokens", True, None),
    (BOTH, "truncate_prompt_tokens", 6, None),
    (BOTH, "truncation_side", "left", None),
    (BOTH, "return_tokens_as_token_ids", True, None),
    (BOTH, "return_token_ids", True, None),
    (BOTH, "stop", ["r"], None),
    (BOTH, "stop_token_ids", [300, 301], None),
    (BOTH, "include_stop_str_in_output", True, None),
    (BOTH, "ignore_eos", True, None),
    (BOTH, "skip_special_tokens", False, None),
    (BOTH, "spaces_between_special_tokens", False, None),
    (BOTH, "stream", True, None),
    (BOTH, "stream_options", None, None),
    (BOTH, "max_tokens", 5, None),
    ((CHAT,), "max_completion_tokens", 5, None),
    ((CHAT,), "messages", [*TALK, {"role": "assistant", "content": "I"}, *TALK], None),
    ((CHAT,), "logprobs", True, None),
    ((COMPLETIONS,), "logprobs", 2, None),
    ((CHAT,), "reasoning_effort", "low", None),
    ((CHAT,), "chat_template_kwargs", {"enable_thinking": False}, None),
    ((CHAT,), "documents", [{"title": "a", "text": "b"}], None),
    ((CHAT,), "tool_choice", "none", None),
    ((CHAT,), "parallel_tool_calls", True, None),
    ((CHAT,), "include_reasoning", False, "include_reasoning"),
    ((CHAT,), "parallel_tool_calls", False, "parallel_tool_calls"),
    ((COMPLETIONS,), "prompt", [40, 41, 200, 201, 177], None),
    ((COMPLETIONS,), "prompt", ["a", "b"], "prompt"),
    (BOTH, "n", 1, None),
    (BOTH, "frequency_penalty", 0.5, "frequency_penalty"),
    (BOTH, "presence_penalty", -0.5, "presence_penalty"),
    (BOTH, "presence_penalty", 0, None),
    (BOTH, "repetition_penalty", 1.2, "repetition_penalty"),
    (BOTH, "min_tokens", 3, "min_tokens"),
    (BOTH, "bad_words", ["pages"], "bad_words"),
    (BOTH, "logit_bias", {"300": 100}, "logit_bias"),
    (BOTH, "allowed_token_ids", [300, 301, 302], "allowed_token_ids"),
    (BOTH, "use_beam_search", True, "use_beam_search"),
    (BOTH, "length_penalty", 0.5, "length_penalty"),
    (BOTH, "prompt_logprobs", 1, "prompt_logprobs"),
    (BOTH, "response_format", {"type": "text"}, None),
    (BOTH, "response_format", JSON_SCHEMA, "response_format"),
    (BOTH, "structured_outputs", {"regex": "ab+"}, "structured_outputs"),
    (BOTH, "echo", True, "echo"),
    (BOTH, "stream_interval", 1, None),
    (BOTH, "stream_interval", 4, "stream_interval"),
    (BOTH, "return_token_offsets", True, "return_token_offsets"),
    ((CHAT,), "return_prompt_text", True, "return_prompt_text"),
    (BOTH, "routed_experts_prompt_start", 1, "routed_experts_prompt_start"),
    (BOTH, "mm_payload", "none", "mm_payload"),
    (BOTH, "return_mm_kwargs", True, "return_mm_kwargs"),
    ((CHAT,), "mm_processor_kwargs", {}, "mm_processor_kwargs"),
    (BOTH, "vllm_xargs", {"a": 1}, "vllm_xargs"),
    (BOTH, "repetition_detection", {"max_pattern_size": 2, "min_count": 3}, "repetition_detection"),
    (BOTH, "a_field_of_tomorrow", 1, "a_field_of_tomorrow"),
]

# Values that vLLM refuses, with its status, message and parameter.
REFUSED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (BOTH, {"model": "nope"}),
    (BOTH, {"model": 7}),
    (BOTH, {"max_tokens": 0}),
    (BOTH, {"max_tokens": -1}),
    (BOTH, {"max_tokens": 10**6}),
    (BOTH, {"max_tokens": "many"}),
    (BOTH, {"temperature": -1}),
    (BOTH, {"temperature": "a"}),
    (BOTH, {"top_p": 0}),
    (BOTH, {"top_k": -7}),
    (BOTH, {"min_p": 2}),
    (BOTH, {"seed": 2**70}),
    (BOTH, {"n": 0}),
    (BOTH, {"n": 2}),  # greedy
    (BOTH, {"stop": [""]}),
    (BOTH, {"stop": 5}),
    (BOTH, {"stop_token_ids": [99999]}),
    (BOTH, {"stop_token_ids": ["a"]}),
    (BOTH, {"stream_options": {"include_usage": True}}),
    (BOTH, {"cache_salt": ""}),
    (BOTH, {"priority": "high"}),
    (BOTH, {"truncate_prompt_tokens": -5}),
    (BOTH, {"truncation_side": "middle"}),
    (BOTH, {"ignore_eos": "perhaps"}),
    (BOTH, {"min_tokens": 50}),
    (BOTH, {"presence_penalty": 9}),
    (BOTH, {"frequency_penalty": "a"}),
    (BOTH, {"repetition_penalty": 0}),
    (BOTH, {"logit_bias": {"99999": 1}}),
    (BOTH, {"allowed_token_ids": []}),
    (BOTH, {"prompt_logprobs": -3}),
    (BOTH, {"response_format": {"type": "json_schema"}}),
    (BOTH, {"structured_outputs": {"regex": "a", "json": {}}}),
    (BOTH, {"stream_interval": 0}),
    ((CHAT,), {"max_completion_tokens": 10**20}),
    ((CHAT,), {"messages": []}),
    ((CHAT,), {"messages": None}),
    ((CHAT,), {"messages": [{"role": "user", "content": "word " * 900}]}),
    ((CHAT,), {"top_logprobs": 3}),
    ((CHAT,), {"media_io_kwargs": {"image": {}}}),  # needs a server that trusts its clients
    ((CHAT,), {"logprobs": True, "top_logprobs": 99}),
    ((CHAT,), {"logprobs": True, "top_logprobs": -1}),
    ((CHAT,), {"logprobs": True, "top_logprobs": "a"}),
    ((CHAT,), {"tools": []}),
    ((CHAT,), {"tools": TOOLS}),
    ((CHAT,), {"tool_choice": "auto"}),
    ((CHAT,), {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}),
    ((CHAT,), {"reasoning_effort": "enormous"}),
    ((CHAT,), {"continue_final_message": True, "add_generation_prompt": True}),
    ((COMPLETIONS,), {"prompt": ""}),
    ((COMPLETIONS,), {"prompt": []}),
    ((COMPLETIONS,), {"prompt": None}),
    ((COMPLETIONS,), {"prompt": [1, 2, 99999]}),
    ((COMPLETIONS,), {"prompt": [-1]}),
    ((COMPLETIONS,), {"prompt": [50] * LENGTH}),
    ((COMPLETIONS,), {"logprobs": -1}),
    ((COMPLETIONS,), {"logprobs": -2}),
    ((COMPLETIONS,), {"logprobs": 99}),
    ((COMPLETIONS,), {"suffix": 7}),
]
RAW: list[bytes] = [b"{nope", b"", b"[1]", b'"x"', b"\xff\xfe"]


def replies(model: Model) -> Iterator[Case]:
    """Requests that a server without parsers answers."""
    for path, base in BASES.items():
        for way in WAYS:
            for asked in ASKED:
                yield Case(path, {**base, **way, **asked})
        yield from _logprobs(path, base)
        yield from _bytes(path, base)
        yield Case(path, {**base, "temperature": None, "top_k": 1})
        yield Case(path, {**base, "n": 2, "temperature": 0.7, "seed": 5}, "n")
    for paths, field, value, fallback in FIELDS:
        for path in paths:
            yield Case(path, {**BASES[path], field: value}, fallback)
    for end in (END, PAD):
        ids = [40, model.before(end)]
        yield from (Case(COMPLETIONS, {**TEXT_BASE, **way, "prompt": ids}) for way in WAYS)
        yield Case(COMPLETIONS, {**TEXT_BASE, "prompt": ids, "logprobs": 1, "return_token_ids": True})
    yield Case(COMPLETIONS, {**TEXT_BASE, "prompt": [50] * (LENGTH - 1), "max_tokens": 9})
    yield Case(COMPLETIONS, {**TEXT_BASE, "max_tokens": None})
    yield Case(CHAT, {**CHAT_BASE, "max_tokens": None})
    yield Case(CHAT, {**CHAT_BASE, "add_generation_prompt": False, "stream": True})
    yield Case(CHAT, {**CHAT_BASE, "add_generation_prompt": False, "continue_final_message": True})


def _logprobs(path: str, base: dict[str, Any]) -> Iterator[Case]:
    for count in range(6):
        asked = {"logprobs": True, "top_logprobs": count} if path == CHAT else {"logprobs": count}
        for way in ({}, RUNNING):
            yield Case(path, {**base, **way, **asked})
    asked = {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    for way in ({}, {"stream": True}):
        yield Case(path, {**base, **way, **asked, "return_tokens_as_token_ids": True, "return_token_ids": True})
        yield Case(path, {**base, **way, **asked, "stop": ["e"], "max_tokens": 30})
        yield Case(path, {**base, **way, **asked, "max_tokens": 1})
    yield Case(path, {**base, **asked, "logprob_token_ids": [40, 41]}, "logprob_token_ids")


def _bytes(path: str, base: dict[str, Any]) -> Iterator[Case]:
    """Characters that are split over tokens, and stop strings of them."""
    go = {"chat_template_kwargs": {"go": "<|go-bytes|>"}} if path == CHAT else {"prompt": "Say <|go-bytes|>"}
    asked = {"logprobs": True, "top_logprobs": 3} if path == CHAT else {"logprobs": 3}
    for way in ({}, {"stream": True}):
        for more in (
            {},
            {"stop": "日"},
            {"stop": ["🎉 日"], "include_stop_str_in_output": True},
            {"stop": ["é"]},
            asked,
        ):
            yield Case(path, {**base, **way, **go, **more, "max_tokens": 14})


def parsed() -> Iterator[Case]:
    """Chats that a server with a reasoning and a tool parser answers."""
    base = {**CHAT_BASE, "max_tokens": 60}
    for go in GOES:
        kwargs = {"chat_template_kwargs": {"go": go}}
        for way in ({}, {"stream": True}, RUNNING):
            yield Case(CHAT, {**base, **kwargs, **way})
            yield Case(CHAT, {**base, **kwargs, **way, "tools": TOOLS})
    everything = {**base, "tools": TOOLS, "chat_template_kwargs": {"go": "<|go-all|>"}}
    for way in ({}, USAGE):
        for more in (
            {"tool_choice": "none"},
            {"tool_choice": "auto"},
            {"include_reasoning": False},
            {"include_reasoning": False, "return_token_ids": True, "logprobs": True},
            {"return_token_ids": True},
            {"logprobs": True, "top_logprobs": 2},
            {"stop": ["look it"]},
            {"stop": ["東"]},
            {"ignore_eos": True},
            {"reasoning_effort": "none"},
            {"reasoning_effort": "high"},
            *({"max_tokens": count} for count in (1, 2, 6, 8, 12, 16, 20)),
        ):
            yield Case(CHAT, {**everything, **way, **more})
        named = {"type": "function", "function": {"name": "lookup"}}
        for choice in ("required", named):
            yield Case(CHAT, {**everything, **way, "tool_choice": choice}, "structured_outputs")
        yield Case(CHAT, {**everything, **way, "parallel_tool_calls": False}, "structured_outputs")
        thoughtless = {"chat_template_kwargs": {"enable_thinking": False, "go": "<|go-call|>"}}
        yield Case(CHAT, {**everything, **way, **thoughtless})
        yield Case(CHAT, {**everything, **way, **thoughtless, "parallel_tool_calls": True})
    yield Case(COMPLETIONS, {**TEXT_BASE, "prompt": "x<|go-all|>", "max_tokens": 40})
