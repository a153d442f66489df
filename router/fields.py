"""Which request fields the speed tier executes.

Invariant (R1): a field is executed because it stands in ``EXECUTED``, is neutral because its value stands in
``NEUTRAL`` or is null, and otherwise sends its request to the native pool; no name is ever skipped over.
Names and defaults are those of vLLM's request models
(vllm/entrypoints/openai/{chat_completion,completion}/protocol.py) and of ``SamplingParams``
(vllm/sampling_params.py).
"""

from collections.abc import Mapping, Set

import msgspec

from router.body import Body

__all__ = ["EXECUTED", "NEUTRAL", "unable", "unable_resolved"]

_RENDER = "in the rendered prompt"
_RESOLVED = "in the resolved sampling parameters"
_ROUTER = "by the router"
_PREFILL = "by the prefill server"
_NOTHING = "nowhere: vLLM reads and ignores it"

EXECUTED: Mapping[str, str] = {
    # What each is executed by; the same for both endpoints, for a name that one lacks is refused by vLLM's
    # own rules.
    "model": _PREFILL,
    "messages": _RENDER,
    "prompt": _RENDER,
    "add_generation_prompt": _RENDER,
    "add_special_tokens": _RENDER,
    "chat_template": _RENDER,
    "chat_template_kwargs": _RENDER,
    "continue_final_message": _RENDER,
    "documents": _RENDER,
    "reasoning_effort": _RENDER,
    "truncate_prompt_tokens": _RENDER,
    "truncation_side": _RENDER,
    "max_tokens": _RESOLVED,
    "max_completion_tokens": _RESOLVED,
    "temperature": _RESOLVED,
    "top_p": _RESOLVED,
    "top_k": _RESOLVED,
    "min_p": _RESOLVED,
    "seed": _RESOLVED,
    "stop_token_ids": _RESOLVED,
    "ignore_eos": _RESOLVED,
    "stop": _ROUTER,
    "include_stop_str_in_output": _ROUTER,
    "skip_special_tokens": _ROUTER,
    "spaces_between_special_tokens": _ROUTER,
    "stream": _ROUTER,
    "stream_options": _ROUTER,
    "request_id": _ROUTER,
    "cache_salt": _PREFILL,
    "priority": _PREFILL,
    "user": _NOTHING,
    "metadata": _NOTHING,
    "store": _NOTHING,
    "service_tier": _NOTHING,
    "prompt_cache_key": _NOTHING,
    "safety_identifier": _NOTHING,
}

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logprob_token_ids": ([],),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_tokens": (0,),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True,),
    "include_reasoning": (True,),
    "response_format": ({"type": "text"},),
    "stream_interval": (1,),
    "return_tokens_as_token_ids": (False,),
    "return_token_offsets": (False,),
    "return_prompt_text": (False,),
    "return_token_ids": (True, False),
    "routed_experts_prompt_start": (0,),
    "mm_payload": ("tensors",),
}

# Resolved sampling parameters that reach the decode node, with the value that says nothing.
DECODED: Mapping[str, tuple[object, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "seed": (None,),
    "stop_token_ids": ([],),
    "ignore_eos": (False,),
}
# Resolved sampling parameters that are done here, or say how vLLM itself is to answer.
LOCAL = frozenset(
    {
        "max_tokens",
        "stop",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "output_kind",
        "skip_clone",
        "skip_reading_prefix_cache",
        "output_text_buffer_length",
    }
)


def _among(value: object, values: tuple[object, ...]) -> bool:
    # Python's 1 == True would let {"logprobs": 0} pass for false, which vLLM's completions read as a count.
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def unable(body: Body) -> str | None:
    """The first field of a request that the speed tier does not execute, or None."""
    for name, raw in (body.fields or {}).items():
        if name in EXECUTED:
            continue
        value = msgspec.json.decode(raw)
        if value is not None and not _among(value, NEUTRAL.get(name, ())):
            return name
    prompt = body.get("prompt")
    if isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt):
        return "prompt"
    return None


MOST_STOPS = 200
"""How many stop ids a decode node takes in one request (persistent_engine/server/request.py)."""


def unable_resolved(params: Mapping[str, object], executes: Set[str]) -> str | None:
    """The first resolved sampling parameter that a decode node cannot execute, or None.

    ``executes``: the names that the node's ``/capabilities`` lists under ``sampling``.
    """
    stops = params.get("stop_token_ids")
    if isinstance(stops, list) and len(stops) > MOST_STOPS - 20:  # the model's own end ids come on top
        return "stop_token_ids"
    for name, value in params.items():
        if name in LOCAL or value is None:
            continue
        if name in DECODED:
            if name not in executes and not _among(value, DECODED[name]):
                return name
        elif not _among(value, NEUTRAL.get(name, ())):
            return name
    return None
