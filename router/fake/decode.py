"""A decode node that replays tokens.

Invariant: its HTTP is that of ``persistent_engine.server``: NDJSON lines of ids, then ``done`` or ``error``;
a closed connection cancels.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from router.fake.model import reply_of
from router.fake.prefill import FakePrefill
from router.fake.slots import FakeSlots
from router.logprobs import Reported

__all__ = ["FakeDecode"]

Fault = Literal["", "busy", "timeout", "failed", "mute", "hang", "die", "error", "cancelled", "garbage", "cut"]
SAMPLING = ["temperature", "top_k", "top_p", "min_p", "seed", "stop_token_ids", "ignore_eos", "eos_token_ids"]
REFUSALS = {
    "busy": (429, "busy", "no slot is free"),
    "timeout": (504, "kv_transfer_timeout", "the state did not arrive"),
    "failed": (502, "kv_transfer_failed", "fingerprint: weights differ"),
}


@dataclass
class FakeDecode:
    """One node.

    ``tokens``: what it adds after the first token, or what gives that for it; ``logprobs``: its account of each, or
    what gives those for the first token, for whoever asks, if ``sampling`` lists them; ``per_line``: how many tokens
    are in a line; ``pace_s``: wait before each line. ``fault`` comes after ``after`` lines: ``busy``, ``timeout``
    and ``failed`` refuse the order, ``mute`` never answers it, ``hang`` goes silent, ``die`` drops the connection,
    ``cut`` ends the stream without a ``done`` line, ``error`` sends an error line, ``cancelled`` ends with that reason,
    ``garbage`` sends no JSON. ``deaf``: cancels are never answered. ``lease``: it keeps slots before prefill; ``kept``:
    which. ``source``: the prefill server that hands prompts off to it; it then says what ``fake.model`` does, after
    them and instead of ``tokens``.
    """

    tokens: Sequence[int] | Callable[[int], Sequence[int]] = (10, 11, 12)
    logprobs: Sequence[Reported] | Callable[[int], Sequence[Reported]] = ()
    slots: int = 1
    max_tokens: int = 512
    per_line: int = 1
    pace_s: float = 0.0
    fault: Fault = ""
    after: int = 0
    deaf: bool = False
    instance: str = "fake"
    sampling: list[str] = field(default_factory=lambda: list(SAMPLING))
    orders: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    peers: list[object] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    hung_up: list[str] = field(default_factory=list)
    active: int = 0
    most_active: int = 0
    lease: bool = True
    source: "FakePrefill | None" = None

    def __post_init__(self) -> None:
        self.kept = FakeSlots(self.slots)

    def app(self) -> web.Application:
        """The node's HTTP application."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/capabilities", self._capabilities),
                web.get("/health", self._health),
                web.post("/pd/decode", self._decode),
                web.post("/pd/cancel", self._cancel),
                web.post("/pd/lease", self.kept.lease),
            ]
        )
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _capabilities(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "model": "tiny",
                "architecture": "fake",
                "max_tokens": self.max_tokens,
                "slots": self.slots,
                "instance": self.instance,
                "ctrl_port": 7001,
                "data_port": 7002,
                "transport": "fake",
                "sampling": self.sampling,
                "lease": self.lease,
                "fingerprint": {"weights": "w"},
            }
        )

    async def _cancel(self, request: web.Request) -> web.Response:
        rid = (await request.json())["rid"]
        self.cancelled.append(rid)
        self.kept.release(rid)
        if self.deaf:
            await asyncio.Event().wait()
        return web.json_response({})

    async def _decode(self, request: web.Request) -> web.StreamResponse:
        order = await request.json()
        self.orders.append(order)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        self.kept.use(order["rid"])
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._answer(request, order)
        except (asyncio.CancelledError, ConnectionResetError):
            self.hung_up.append(order["rid"])
            raise
        finally:
            self.active -= 1
            self.kept.release(order["rid"])

    async def _answer(self, request: web.Request, order: dict[str, Any]) -> web.StreamResponse:
        if self.fault in REFUSALS and self.after == 0:
            status, code, message = REFUSALS[self.fault]
            error = {"message": message, "type": "server_error", "code": code}
            return web.json_response({"error": error}, status=status, headers={"retry-after": "7"})
        if self.fault == "mute":
            await asyncio.Event().wait()
        reply = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await reply.prepare(request)
        tokens = self._tokens(order)
        accounts = self.logprobs(order["first_token_id"]) if callable(self.logprobs) else self.logprobs
        ends = {*order["sampling"]["eos_token_ids"], *order["sampling"]["stop_token_ids"]}
        sent, reason = 0, "length"
        for number in range(0, len(tokens), self.per_line):
            if self.fault and number // self.per_line >= self.after:
                return await self._fail(request, reply)
            await asyncio.sleep(self.pace_s)
            line = list(tokens[number : number + self.per_line])[: order["max_tokens"] - sent]
            told: dict[str, Any] = {"t": line}
            if (asked := order["sampling"].get("logprobs")) is not None:
                some = accounts[number : number + len(line)]
                told["lp"] = [[logprob, rank, list(top[:asked])] for logprob, rank, top in some]
            await reply.write(web.json_response(told).body + b"\n")  # type: ignore[operator]
            sent += len(line)
            if line[-1] in ends:
                reason = "stop"
                break
            if sent >= order["max_tokens"]:
                break
        await reply.write(b'{"done":true,"n":%d,"finish_reason":"%s","stop_reason":null}\n' % (sent, reason.encode()))
        return reply

    def _tokens(self, order: dict[str, Any]) -> Sequence[int]:
        if self.source is None:
            return self.tokens(order["first_token_id"]) if callable(self.tokens) else self.tokens
        prompt = self.source.handoffs[order["rid"]]
        return reply_of([*prompt, order["first_token_id"]], order["max_tokens"])

    async def _fail(self, request: web.Request, reply: web.StreamResponse) -> web.StreamResponse:
        if self.fault == "hang":
            await asyncio.Event().wait()
        if self.fault == "die":
            assert request.transport is not None
            request.transport.abort()
        lines = {
            "error": b'{"error":{"message":"engine stopped","type":"server_error","code":"engine_failed"}}\n',
            "cancelled": b'{"done":true,"n":0,"finish_reason":"cancelled","stop_reason":null}\n',
            "garbage": b"{oops\n",
        }
        if self.fault in lines:
            await reply.write(lines[self.fault])
        return reply
