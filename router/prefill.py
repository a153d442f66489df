"""Calls to prefill servers: what they serve, prompts as token ids, first tokens.

Invariant: the parameters that render resolves are the only sampling parameters of both legs, and a prefill
server's own 4xx reaches the client unchanged. A server that lacks the scale-out endpoints is known as such until it
cannot be reached, for then it may come back with them, and no longer than ``REMEMBERED_S``. Shapes:
vllm/entrypoints/{scale_out/render,serve/tokenize} (0.32).
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from router.body import Body
from router.config import Timeouts
from router.errors import ApiError, NotConfigured, PassedThrough, PeerBroken, PeerTimeout
from router.first_leg import COMPLETIONS, GENERATE, Generated, completion_order, first_of, generate_order
from router.rendered import Card, FirstToken, Rendered, StreamOptions

__all__ = ["Card", "FirstToken", "Prefill", "Rendered", "StreamOptions", "Tokens"]

REMEMBERED_S = 30.0

T = TypeVar("T")


class Tokens(msgspec.Struct, frozen=True):
    """``/tokenize``: ids, and the most tokens that the server's model takes."""

    tokens: list[int]
    max_model_len: int


class Cards(msgspec.Struct, frozen=True):
    """``/v1/models``."""

    data: list[Card]


class Prefill:
    """Calls to prefill servers. Headers given are the client's, already cleared of hop-by-hop ones."""

    def __init__(self, session: aiohttp.ClientSession, timeouts: Timeouts) -> None:
        self._session = session
        self._timeouts = timeouts
        self._plain: dict[str, float] = {}  # servers without scale-out endpoints, and when to ask them again

    def scales_out(self, url: str) -> bool:
        """Whether the server has the scale-out endpoints, as far as is known."""
        return self._plain.get(url, 0.0) <= time.monotonic()

    async def models(self, url: str, headers: Mapping[str, str]) -> list[Card]:
        """What the server serves."""
        raw = await self._call("GET", url, "/v1/models", headers, None, self._timeouts.connect)
        return _decoded(raw, Cards, url, "/v1/models").data

    async def render(self, url: str, path: str, body: Body, headers: CIMultiDict[str]) -> list[Rendered]:
        """Token ids and sampling parameters of a request to ``path``; one for each prompt.

        Raises:
            PassedThrough: the server refuses the request, in its own words.
            NotConfigured: the server has no such endpoint; it is remembered.
            PeerBroken, PeerTimeout: it fails.
        """
        try:
            raw = await self._call("POST", url, f"{path}/render", headers, body.raw, self._timeouts.render)
        except NotConfigured:
            self._plain[url] = time.monotonic() + REMEMBERED_S
            raise
        if raw.lstrip().startswith(b"["):
            return _decoded(raw, list[Rendered], url, "render")
        return [_decoded(raw, Rendered, url, "render")]

    async def tokenize(self, url: str, order: Mapping[str, object], headers: CIMultiDict[str]) -> Tokens:
        """Token ids of a prompt or of messages, on any server. Raises as ``render``."""
        sent = CIMultiDict(headers)
        sent["content-type"] = "application/json"
        raw = await self._call("POST", url, "/tokenize", sent, msgspec.json.encode(order), self._timeouts.render)
        return _decoded(raw, Tokens, url, "/tokenize")

    async def first_token(
        self, url: str, rendered: Rendered, params: dict[str, object], headers: CIMultiDict[str]
    ) -> FirstToken:
        """Prefill the prompt and sample one token. ``params``: ``kv_transfer_params``. Raises as ``render``."""
        sent = CIMultiDict(headers)
        sent["content-type"] = "application/json"
        if rendered.logprobs is None and not rendered.tokenized and self.scales_out(url):
            data = msgspec.json.encode(generate_order(rendered, params))
            try:
                raw = await self._call("POST", url, GENERATE, sent, data, self._timeouts.prefill)
            except NotConfigured:  # another server than the one that rendered
                self._plain[url] = time.monotonic() + REMEMBERED_S
            else:
                return first_of(_decoded(raw, Generated, url, GENERATE), url, None)
        data = msgspec.json.encode(completion_order(rendered, params))
        raw = await self._call("POST", url, COMPLETIONS, sent, data, self._timeouts.prefill)
        return first_of(_decoded(raw, Generated, url, COMPLETIONS), url, rendered.logprobs)

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
            self._plain.pop(url, None)
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
