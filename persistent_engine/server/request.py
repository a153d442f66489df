"""The body of `POST /pd/decode`, checked.

Invariant: a field is executed or refused; none is dropped.
"""

import secrets
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from persistent_engine.runtime import Sampling
from persistent_engine.server.errors import Answer

__all__ = ["EXECUTED", "DecodeRequest", "LeaseRequest", "SamplingFields", "parse", "parse_lease"]

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "min_tokens": 0,
    "logit_bias": None,
    "logprobs": None,
    "top_logprobs": 0,
    "bad_words": None,
    "structured_outputs": None,
}
"""Sampling fields of vLLM that this engine does not execute, with the value that asks for nothing."""


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resolved sampling parameters, with vLLM's names and meanings (vllm/sampling_params.py)."""

    temperature: Annotated[float, Meta(ge=0)] = 0.0
    top_k: Annotated[int, Meta(ge=-1)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=200)] = []
    eos_token_ids: Annotated[list[TokenId], Meta(max_length=50)] = []
    ignore_eos: bool = False

    def engine_sampling(self) -> Sampling:
        """What the engine gets; a request without a seed gets a random one."""
        eos = [] if self.ignore_eos else self.eos_token_ids
        return Sampling(
            temperature=self.temperature,
            top_k=max(0, self.top_k),
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed if self.seed is not None else secrets.randbits(62),
            stops=tuple(dict.fromkeys([*self.stop_token_ids, *eos])),
        )


EXECUTED = SamplingFields.__struct_fields__
"""Names of the sampling fields that this node executes."""


class DecodeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rid: the handoff's id. max_tokens: how many tokens may follow `first_token_id`."""

    rid: Annotated[str, Meta(min_length=1, max_length=200)]
    first_token_id: TokenId
    max_tokens: Annotated[int, Meta(ge=1)]
    sampling: SamplingFields = SamplingFields()
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    stream: bool = False


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /pd/lease`. wait_s: how long the answer may wait for a slot."""

    rid: Annotated[str, Meta(min_length=1, max_length=200)]
    wait_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0


def parse_lease(body: bytes) -> LeaseRequest:
    """Raises: Answer 400 naming the field."""
    try:
        return msgspec.json.decode(body, type=LeaseRequest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Answer(400, "invalid_request", f"/pd/lease: {error}") from error


def _drop_neutral(raw: Any) -> None:
    """Remove known fields that ask for nothing; refuse those that ask for what the engine lacks."""
    for fields in (raw, raw.get("sampling")):
        if not isinstance(fields, dict):
            continue
        for name, neutral in NEUTRAL.items():
            if name not in fields:
                continue
            value = fields.pop(name)
            if value is not None and value != neutral:
                raise Answer(501, "unsupported_field", f"{name} is {value!r}; this node does not execute it")


def parse(body: bytes) -> DecodeRequest:
    """Raises: Answer 400 naming the field, 501 for a sampling field that the engine lacks."""
    try:
        raw = msgspec.json.decode(body)
        if isinstance(raw, dict):
            _drop_neutral(raw)
        return msgspec.convert(raw, DecodeRequest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Answer(400, "invalid_request", f"/pd/decode: {error}") from error
