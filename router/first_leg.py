"""The two ways to have a prefill server sample one token from token ids.

``/inference/v1/generate`` is for servers with the scale-out endpoints. ``/v1/completions`` takes token ids on every
server, and is asked where logprobs are wanted as well: the other cuts the most likely tokens to their number with
the sampled one among them, which loses the last (vllm/entrypoints/scale_out/token_in_token_out/serving.py).

Invariant: both say the same of the same request: every parameter that the model's defaults could change is spelt out.
"""

from collections.abc import Mapping

import msgspec

from router.errors import PeerBroken
from router.fields import DECODED, LOCAL
from router.logprobs import PLACEHOLDER, TokenLogprob
from router.rendered import FirstToken, Rendered

__all__ = ["COMPLETIONS", "GENERATE", "Generated", "completion_order", "first_of", "generate_order"]

GENERATE = "/inference/v1/generate"
COMPLETIONS = "/v1/completions"
# What vLLM would else take from the model's generation config.
NEUTRAL: dict[str, object] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
NEUTRAL |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


class Logprobs(msgspec.Struct, frozen=True):
    """vLLM's ``CompletionLogProbs`` with tokens named by id."""

    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class Choice(msgspec.Struct, frozen=True):
    """The one choice of either reply."""

    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Logprobs | None = None


class Usage(msgspec.Struct, frozen=True):
    """The part of ``usage`` that only the prefill server knows."""

    prompt_tokens_details: dict[str, object] | None = None


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's ``GenerateTokensResponse`` or ``CompletionResponse``, as far as they are needed."""

    choices: list[Choice]
    model: str = ""
    usage: Usage | None = None
    kv_transfer_params: dict[str, object] | None = None


def _shared(rendered: Rendered, transfer: Mapping[str, object] | None) -> dict[str, object]:
    return {
        "request_id": rendered.request_id,
        "model": rendered.model,
        "stream": False,
        "cache_salt": rendered.cache_salt,
        "priority": rendered.priority,
        "kv_transfer_params": transfer,
    }


def generate_order(rendered: Rendered, transfer: Mapping[str, object]) -> dict[str, object]:
    """Body for ``GENERATE``. ``transfer``: ``kv_transfer_params``."""
    # Stop strings are matched here: they end in one place, and in the same way, for both legs.
    sampling = {name: value for name, value in rendered.sampling_params.items() if name not in LOCAL}
    return {
        **_shared(rendered, transfer),
        "token_ids": rendered.token_ids,
        "sampling_params": {**sampling, "max_tokens": 1},
    }


def completion_order(
    rendered: Rendered, transfer: Mapping[str, object] | None, new: int = 1, *, stream: bool = False
) -> dict[str, object]:
    """Body for ``COMPLETIONS``: ``new`` tokens at most."""
    params = rendered.sampling_params
    sampling = {name: params[name] for name in DECODED if params.get(name) is not None}
    return {
        **_shared(rendered, transfer),
        **NEUTRAL,
        **sampling,
        "prompt": rendered.token_ids,
        "max_tokens": new,
        "stream": stream,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def first_of(generated: Generated, url: str, logprobs: int | None) -> FirstToken:
    """The token of either reply. ``logprobs``: how many of the most likely tokens were asked for.

    Raises:
        PeerBroken: there is none, or the server does not hand the state on.
    """
    if refused := (generated.kv_transfer_params or {}).get("tilert_refused"):
        raise PeerBroken(f"prefill server {url} does not hand the state on: {refused}", blame=False)
    choice = generated.choices[0] if generated.choices else Choice()
    if not choice.token_ids or choice.finish_reason not in ("stop", "length"):
        raise PeerBroken(f"prefill server {url} ended with finish_reason {choice.finish_reason!r} and no usable token")
    token = choice.token_ids[0]
    return FirstToken(
        token=token,
        model=generated.model,
        stopped=choice.finish_reason == "stop",
        stop_reason=choice.stop_reason,
        prompt_tokens_details=generated.usage.prompt_tokens_details if generated.usage else None,
        logprobs=() if logprobs is None else [_logprob(choice.logprobs, token, url, logprobs)],
    )


def _logprob(told: Logprobs | None, token: int, url: str, count: int) -> TokenLogprob:
    if told is None or not (told.token_logprobs and told.top_logprobs) or told.token_logprobs[0] is None:
        raise PeerBroken(f"prefill server {url} was asked for logprobs and sent none")
    entries = (told.top_logprobs[0] or {}).items()
    # The sampled token comes first, and is one too many when it is not among the most likely.
    top = [(int(name.removeprefix(PLACEHOLDER)), value) for name, value in entries][-count:]
    return TokenLogprob(token, told.token_logprobs[0], top)
