"""A vLLM server, a router whose decode node says what the scripted checkpoint says, and what both answer.

Invariant: all that two replies may differ in is named here: when they were made, by what, the random ids of
tool calls, the fifth digit of a log-probability, and where vLLM cut a stream of which its reader was late.
"""

import json
from typing import Any

import aiohttp

from router.fake import FakeDecode

TOLERANCE = 1e-4


class Pair:
    """A server and a router."""

    def __init__(self, vllm: str, router: str, node: FakeDecode, session: aiohttp.ClientSession) -> None:
        self.vllm, self.router, self.node, self.session = vllm, router, node, session

    async def post(self, base: str, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, str | None]:
        """Status, type and body of an answer, and what made it fall back."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", "x-request-id": "r1", **headers}
        async with self.session.post(base + path, data=raw, headers=headers) as reply:
            events = reply.content_type == "text/event-stream"
            answer = (reply.status, reply.headers["content-type"], plain(await reply.text(), events))
            return answer, reply.headers.get("x-speedtier-fallback")

    async def both(self, path: str, body: Any) -> tuple[Any, Any, str | None]:
        """What vLLM says, what the router's speed class says, chunk by chunk where both had the same chunks, and what
        made that fall back."""
        theirs, _ = await self.post(self.vllm, path, body, {})
        ours, fallback = await self.post(self.router, path, body, {"x-traffic-class": "speed"})
        if isinstance(theirs[2], list) and isinstance(ours[2], list) and not same(theirs, ours):
            theirs, ours = ((*each[:2], joined(each[2])) for each in (theirs, ours))
            fewer, more = sorted((theirs[2]["middle"], ours[2]["middle"]), key=len)
            if all(each in more for each in fewer):  # a stream of fewer chunks shows fewer shapes
                theirs[2]["middle"] = ours[2]["middle"] = []
        return theirs, ours, fallback


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, but for the last digits of numbers that are not whole."""
    if isinstance(one, float) and isinstance(other, int | float):
        return abs(one - other) <= TOLERANCE
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def difference(one: Any, other: Any, where: str = "") -> str:
    """Where two values that are not the same part first."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(
            difference(one[name], other[name], f"{where}.{name}") for name in one if not same(one[name], other[name])
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(difference(*pair, f"{where}[{at}]") for at, pair in pairs if not same(*pair))
    return f"{where}: {str(one)[:300]} is not {str(other)[:300]}"


def plain(text: str, events: bool) -> Any:
    if not events:
        return masked(json.loads(text))
    lines = [each.removeprefix("data: ") for each in text.split("\n\n") if each]
    return [each if each == "[DONE]" else masked(json.loads(each)) for each in lines]


def masked(value: Any) -> Any:
    """Without the values that must differ."""
    if isinstance(value, list):
        return [masked(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: masked(each) for name, each in value.items()}
    if "created" in found:
        found["created"] = 0
        if isinstance(found.get("system_fingerprint"), str):
            found["system_fingerprint"] = "set"
    if isinstance(found.get("id"), str) and found["id"].startswith("chatcmpl-tool-"):
        found["id"] = "chatcmpl-tool-"
    return found


def joined(events: list[Any]) -> dict[str, Any]:
    """A stream without its cuts: texts, ids, tool calls and log-probabilities as one, and every distinct shape of a
    chunk; those between the first and the last apart, for a stream of few tokens may have none."""
    said: dict[str, Any] = {"content": "", "text": "", "reasoning": "", "calls": {}, "ids": [], "logprobs": []}
    shapes: list[Any] = []
    middle: list[Any] = []
    for each in events:
        into = shapes
        if each != "[DONE]" and each.get("choices"):
            [choice] = each["choices"]
            part = choice.get("delta", choice)
            for name in ("content", "text", "reasoning"):
                said[name] += part.pop(name, "") or ""
            for call in part.pop("tool_calls", ()):
                _call(said["calls"].setdefault(call["index"], {}), call)
            said["ids"] += choice.pop("token_ids", None) or []
            said["logprobs"] += _positions(choice.pop("logprobs", None))
            if choice["finish_reason"] is None and "role" not in part:
                (each.get("usage") or {}).clear()
                into = middle
        if each not in into:
            into.append(each)
    return {**said, "shapes": shapes, "middle": middle}


def _call(known: dict[str, Any], call: dict[str, Any]) -> None:
    function = call.get("function") or {}
    known["id"] = known.get("id") or call.get("id")
    known["name"] = known.get("name") or function.get("name")
    known["arguments"] = known.get("arguments", "") + (function.get("arguments") or "")


def _positions(logprobs: dict[str, Any] | None) -> list[Any]:
    if logprobs is None:
        return []
    if "content" in logprobs:
        return list(logprobs["content"] or [])
    return [list(each) for each in zip(*logprobs.values(), strict=True)]
