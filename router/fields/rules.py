"""What the speed tier does with each request field.

Names and defaults are those of vLLM's request models
(vllm/entrypoints/openai/{chat_completion,completion}/protocol.py) and of ``SamplingParams``
(vllm/sampling_params.py). ``python -m router.fields.table`` writes all of this down as docs/fields.md.

Invariant (R1): a name stands in exactly one of ``EXECUTED``, ``PARSED``, ``NATIVE`` and ``REFUSED``.
"""

from collections.abc import Mapping

__all__ = [
    "DECODED",
    "EXECUTED",
    "LOCAL",
    "MOST_STOPS",
    "NATIVE",
    "NEUTRAL",
    "OPENAI_ONLY",
    "PARSED",
    "PARSED_NEUTRAL",
    "REFUSED",
]

_RENDER = "in the rendered prompt"
_RESOLVED = "in the resolved sampling parameters"
_ROUTER = "by the router"
_PREFILL = "by the prefill server"
_NOTHING = "nowhere: vLLM reads and ignores it"

# What each is executed by; the same for both endpoints, for a name that one lacks is refused by vLLM's own rules.
EXECUTED: Mapping[str, str] = {
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
    "logprobs": "by both legs, on decode nodes that list `logprobs`",
    "top_logprobs": "by both legs, on decode nodes that list `logprobs`",
    "return_tokens_as_token_ids": _ROUTER,
    "stop": _ROUTER,
    "include_stop_str_in_output": _ROUTER,
    "skip_special_tokens": _ROUTER,
    "spaces_between_special_tokens": _ROUTER,
    "stream": _ROUTER,
    "stream_options": _ROUTER,
    "return_token_ids": _ROUTER,
    "request_id": _ROUTER,
    "cache_salt": _PREFILL,
    "priority": _PREFILL,
    "session_id": "by the prefill server, as the header `x-session-id`",
    "user": _NOTHING,
    "metadata": _NOTHING,
    "store": _NOTHING,
    "service_tier": "by the router, which chooses the class by it",
    "prompt_cache_key": "by the router, which chooses the decode node by it",
    "safety_identifier": _NOTHING,
}

# Executed where the router has the server's parsers (`reasoning_parser`, `tool_parser`).
PARSED: Mapping[str, str] = {
    "include_reasoning": "reasoning",
    "tools": "tool",
    "tool_choice": "tool",
    "parallel_tool_calls": "tool",
}
# Their values that mean nothing where there is no such parser.
PARSED_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "include_reasoning": (True,),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True,),
}

_SAMPLER = "the engine's sampler does not do it yet"
_ONE = "a slot decodes one reply"
_PROMPT = "it needs logprobs of the prompt, which stay on the prefill server"
_GRAMMAR = "the engine decodes without a grammar"
_MEDIA = "the engine's models take text alone"

NATIVE: Mapping[str, str] = {
    # Why every value but a neutral one goes to the native pool.
    "n": _ONE,
    "best_of": _ONE,
    "use_beam_search": _ONE,
    "length_penalty": "it is for beam search alone",
    "echo": "vLLM puts the prompt's own text in front",
    "suffix": "vLLM refuses it in its own words",
    "prompt_logprobs": _PROMPT,
    "logprob_token_ids": _SAMPLER,
    "frequency_penalty": _SAMPLER,
    "presence_penalty": _SAMPLER,
    "repetition_penalty": _SAMPLER,
    "min_tokens": _SAMPLER,
    "bad_words": _SAMPLER,
    "logit_bias": _SAMPLER,
    "allowed_token_ids": _SAMPLER,
    "watermarking": _SAMPLER,
    "repetition_detection": _SAMPLER,
    "thinking_token_budget": _SAMPLER,
    "response_format": _GRAMMAR,
    "structured_outputs": _GRAMMAR,
    "prompt_embeds": "the prompt has no token ids",
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "mm_payload": _MEDIA,
    "return_mm_kwargs": _MEDIA,
    "stream_interval": "chunks are the engine's steps",
    "return_token_offsets": "it is for vLLM's render endpoints alone",
    "return_prompt_text": "the router has the prompt's ids, not its text",
    "routed_experts_prompt_start": "the engine does not report experts",
    "ec_transfer_params": "it is a prefill server's business with its encoder",
    "vllm_xargs": "it is for extensions of vLLM, which the engine does not have",
}

REFUSED: Mapping[str, str] = {
    "kv_transfer_params": "400: the router decides where attention state goes",
}

# Names of OpenAI's that vLLM's models lack; it takes any further name and ignores it.
OPENAI_ONLY = frozenset({"best_of", "metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store"})

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprob_token_ids": ([],),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_tokens": (0,),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "response_format": ({"type": "text"},),
    "stream_interval": (1,),
    "return_token_offsets": (False,),
    "return_prompt_text": (False,),
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
    "logprobs": (),
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

MOST_STOPS = 200
"""How many stop ids a decode node takes in one request (persistent_engine/server/request.py)."""
