"""The prefill leg: vLLM's render and token-in/token-out endpoints.

Invariant: the parameters that render resolves are the only sampling parameters of both legs, and a prefill
server's own 4xx reaches the client unchanged. Shapes: vllm/entrypoints/scale_out/{render,token_in_token_out}
(0.32).
"""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from router.body import Body
from router.config import Timeouts
from router.errors import ApiError, NotConfigured, PassedThrough, PeerBroken, PeerTimeout
from router.fields import LOCAL

__all__ = ["Card", "FirstToken", "Prefill", "Rendered", "StreamOptions"]


T = TypeVar("T")


class StreamOptions(msgspec.Struct, frozen=True):
    """vLLM's ``stream_options`` as resolved."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as token ids with resolved sampling parameters (vLLM's ``GenerateRequest``)."""

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

    @property
    def multimodal(self) -> bool:
        """Whether the prompt has more in it than tokens."""
        return self.features is not None

    @property
    def max_tokens(self) -> int:
        """Resolved length of the reply; what equals ``SamplingParams``' default is left out by vLLM."""
        value = self.sampling_params.get("max_tokens", 16)
        return value if isinstance(value, int) else 16


class Choice(msgspec.Struct, frozen=True):
    """The one choice of a token-in/token-out reply."""

    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Usage(msgspec.Struct, frozen=True):
    """The part of ``usage`` that only the prefill server knows."""

    prompt_tokens_details: dict[str, object] | None = None


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's ``GenerateTokensResponse``, as far as it is needed."""

    choices: list[Choice]
    model: str = ""
    usage: Usage | None = None
    kv_transfer_params: dict[str, object] | None = None


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """The prefill server's token; ``stopped`` when it ends the reply, then with vLLM's ``stop_reason``."""

    token: int
    model: str
    stopped: bool
    stop_reason: int | str | None
    prompt_tokens_details: dict[str, object] | None


class Card(msgspec.Struct, frozen=True):
    """A model as ``/v1/models`` lists it; ``parent`` is set for an adapter."""

    id: str
    root: str | None = None
    parent: str | None = None


class Cards(msgspec.Struct, frozen=True):
    """``/v1/models``."""

    data: list[Card]


class Prefill:
    """Calls to prefill servers. Headers given are the client's, already cleared of hop-by-hop ones."""

    def __init__(self, session: aiohttp.ClientSession, timeouts: Timeouts) -> None:
        self._session = session
        self._timeouts = timeouts

    async def models(self, url: str, headers: Mapping[str, str]) -> list[Card]:
        """What the server serves."""
        raw = await self._call("GET", url, "/v1/models", headers, None, self._timeouts.connect)
        return _decoded(raw, Cards, url, "/v1/models").data

    async def render(self, url: str, path: str, body: Body, headers: CIMultiDict[str]) -> list[Rendered]:
        """Token ids and sampling parameters of a request to ``path``; one for each prompt.

        Raises:
            PassedThrough: the server refuses the request, in its own words.
            NotConfigured: the server has no such endpoint.
            PeerBroken, PeerTimeout: it fails.
        """
        raw = await self._call("POST", url, f"{path}/render", headers, body.raw, self._timeouts.render)
        if raw.lstrip().startswith(b"["):
            return _decoded(raw, list[Rendered], url, "render")
        return [_decoded(raw, Rendered, url, "render")]

    async def first_token(
        self, url: str, rendered: Rendered, params: dict[str, object], headers: CIMultiDict[str]
    ) -> FirstToken:
        """Prefill the prompt and sample one token. ``params``: ``kv_transfer_params``. Raises as ``render``."""
        # Stop strings are matched here: they end in one place, and in the same way, for both legs.
        sampling = {name: value for name, value in rendered.sampling_params.items() if name not in LOCAL}
        order = {
            "request_id": rendered.request_id,
            "model": rendered.model,
            "token_ids": rendered.token_ids,
            "sampling_params": {**sampling, "max_tokens": 1},
            "stream": False,
            "cache_salt": rendered.cache_salt,
            "priority": rendered.priority,
            "kv_transfer_params": params,
        }
        sent = CIMultiDict(headers)
        sent["content-type"] = "application/json"
        raw = await self._call(
            "POST", url, "/inference/v1/generate", sent, msgspec.json.encode(order), self._timeouts.prefill
        )
        generated = _decoded(raw, Generated, url, "generate")
        if refused := (generated.kv_transfer_params or {}).get("tilert_refused"):
            raise PeerBroken(f"prefill server {url} does not hand the state on: {refused}")
        choice = generated.choices[0] if generated.choices else Choice()
        if not choice.token_ids or choice.finish_reason not in ("stop", "length"):
            raise PeerBroken(
                f"prefill server {url} ended with finish_reason {choice.finish_reason!r} and no usable token"
            )
        return FirstToken(
            token=choice.token_ids[0],
            model=generated.model,
            stopped=choice.finish_reason == "stop",
            stop_reason=choice.stop_reason,
            prompt_tokens_details=generated.usage.prompt_tokens_details if generated.usage else None,
        )

    async def _call(
        self,
        method: str,
        url: str,
        path: str,
        headers: Mapping[str, str],
        data: bytes | None,
        within_s: float,
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(within_s),
                self._session.request(method, url + path, headers=headers, data=data) as reply,
            ):
                raw = await reply.read()
                if reply.status == 200:
                    return raw
                raise _refusal(url, path, reply.status, raw)
        except TimeoutError:
            raise PeerTimeout(f"prefill server {url} did not answer {path} within {within_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise PeerBroken(f"prefill server {url} cannot be reached: {error}") from error


def _refusal(url: str, path: str, status: int, raw: bytes) -> ApiError:
    lacking = status == 403 and b"--enable-scale-out" in raw
    if lacking or (status in (404, 405) and b'"error"' not in raw):
        return NotConfigured(f"prefill server {url} does not serve {path}: start it with --enable-scale-out")
    if 400 <= status < 500:
        return PassedThrough(status, raw)
    return PeerBroken(f"prefill server {url} answered {path} with {status}: {raw[:300].decode(errors='replace')}")


def _decoded(raw: bytes, kind: type[T], url: str, path: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerBroken(f"prefill server {url} sent a {path} reply that is no good: {error}") from error
