"""What a prefill server makes of a request: its prompt as token ids, its parameters, its first token.

Invariant: the sampling parameters of a ``Rendered`` are resolved: the client's, else the model's, else vLLM's.
"""

from collections.abc import Sequence

import msgspec

from router.logprobs import TokenLogprob

__all__ = ["Card", "FirstToken", "Rendered", "StreamOptions"]


class StreamOptions(msgspec.Struct, frozen=True):
    """vLLM's ``stream_options`` as resolved."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as token ids with resolved sampling parameters (vLLM's ``GenerateRequest``).

    ``tokenized``: made from ``/tokenize``, so it does not say what the server would parse.
    """

    request_id: str
    token_ids: list[int]
    sampling_params: dict[str, object]
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: int = 0
    features: dict[str, object] | None = None
    reasoning_parser_kwargs: dict[str, object] | None = None
    tokenized: bool = False

    @property
    def multimodal(self) -> bool:
        """Whether the prompt has more in it than tokens."""
        return self.features is not None

    @property
    def max_tokens(self) -> int:
        """Resolved length of the reply; what equals ``SamplingParams``' default is left out by vLLM."""
        value = self.sampling_params.get("max_tokens", 16)
        return value if isinstance(value, int) else 16

    @property
    def logprobs(self) -> int | None:
        """How many of the most likely tokens are asked for at each position; None: no logprobs at all."""
        value = self.sampling_params.get("logprobs")
        return value if isinstance(value, int) else None


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """The prefill server's token; ``stopped`` when it ends the reply, then with vLLM's ``stop_reason``.
    ``logprobs``: one, where asked for.
    """

    token: int
    model: str
    stopped: bool
    stop_reason: int | str | None
    prompt_tokens_details: dict[str, object] | None
    logprobs: Sequence[TokenLogprob] = ()


class Card(msgspec.Struct, frozen=True):
    """A model as ``/v1/models`` lists it; ``parent`` is set for an adapter. ``max_model_len``: tokens."""

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
