"""Asks the router one question and watches the answer arrive.

Invariant: an answer that another tier gave than the one asked for is an error, never a measurement.
"""

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec

from deploy.demo.questions import Messages
from speedtier.errors import UpstreamError

__all__ = ["Answer", "DemoFailed", "ask"]

_DONE = b"[DONE]"


class DemoFailed(UpstreamError):
    """A tier did not answer as it should."""


class Answer(msgspec.Struct, kw_only=True):
    """What one tier said. Times are seconds from the request's start, as a client on this machine sees
    them.
    """

    tier: str
    text: str = ""
    ids: list[int] = []
    finish: str | None = None
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second after the first one; 0 when there are fewer than two."""
        return (len(self.ids) - 1) / (self.last_s - self.first_s) if len(self.ids) > 1 else 0.0


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    tier: str,
    messages: Messages,
    tokens: int,
    seen: Callable[[Answer], None] = lambda _: None,
) -> Answer:
    """Stream a greedy answer of at most `tokens` from `tier`; `seen` gets it at each change. Raises
    `DemoFailed`.
    """
    body = {
        "model": model,
        "messages": list(messages),
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    answer = Answer(tier=tier, ids=[])
    started = time.perf_counter()
    try:
        headers = {"x-traffic-class": tier}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as reply:
            if reply.status != 200:
                raise DemoFailed(f"{tier} tier answered {reply.status}: {(await reply.text())[:500]}")
            _right_tier(tier, reply)
            async for event in _events(reply):
                if _take(answer, event):
                    answer.last_s = time.perf_counter() - started
                    answer.first_s = answer.first_s or answer.last_s
                    seen(answer)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DemoFailed(f"{tier} tier broke off: {error!r}") from error
    if answer.finish is None or not answer.ids:
        raise DemoFailed(f"{tier} tier ended its stream after {len(answer.ids)} tokens without a finish reason")
    return answer


def _right_tier(tier: str, reply: aiohttp.ClientResponse) -> None:
    fallback = reply.headers.get("x-speedtier-fallback")
    served = reply.headers.get("x-speedtier-class", tier)
    if fallback is not None or served != tier:
        raise DemoFailed(f"asked the {tier} tier, served by {served} (fallback: {fallback})")


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in reply.content:
        data = line.removeprefix(b"data:").strip()
        if line.startswith(b"data:") and data != _DONE:
            yield json.loads(data)


def _take(answer: Answer, event: dict[str, Any]) -> bool:
    """Add a chunk; True when it brought a token."""
    if "error" in event:
        raise DemoFailed(f"{answer.tier} tier: {event['error']}")
    grown = False
    for choice in event.get("choices", ()):
        answer.text += choice["delta"].get("content") or ""
        ids = choice.get("token_ids") or ()
        answer.ids.extend(ids)
        answer.finish = choice.get("finish_reason") or answer.finish
        grown = grown or bool(ids)
    return grown
