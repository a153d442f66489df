"""A vLLM server, with the scale-out endpoints or without, and without a model.

Invariant: what it answers has vLLM's shapes (0.32) and what it refuses vLLM's words, as far as the router
looks at them. It is a native server as well: its chat and completions endpoints send ``native_body`` or
``native_events``.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from aiohttp import web
from tokenizers import Tokenizer

from router.fake.model import reply_of, step

__all__ = ["FakePrefill"]

Fault = Literal["", "hang", "crash", "die", "refuse", "disabled", "missing"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DISABLED = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
PASSED_ON = ("temperature", "top_p", "top_k", "min_p", "seed", "stop_token_ids", "ignore_eos", "n")
SAMPLER_ONLY = ("repetition_penalty", "presence_penalty", "frequency_penalty")
DETOKENIZER_ONLY = ("include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens")


def _error(status: int, message: str, kind: str, param: str | None = None) -> web.Response:
    error = {"message": message, "type": kind, "param": param, "code": status}
    return web.json_response({"error": error}, status=status)


@dataclass
class FakePrefill:
    """One server.

    ``directory``: a model directory with a tokenizer. ``first``: the token it samples; ``finish``: its finish
    reason; ``top``: the most likely ids with their log-probabilities. ``defaults``: sampling defaults of the
    model. ``render_fault``, ``generate_fault`` and ``tokenize_fault``: ``hang`` never answers, ``crash`` is a 500,
    ``die`` drops the connection, ``refuse`` is a 400, ``disabled`` and ``missing`` are servers without the
    endpoint. ``handed_back``: ``kv_transfer_params`` of its replies.
    ``cut_native``: drop the connection after that many native events. ``speaks``: it says what ``fake.model`` does
    instead of ``first``, and completes token ids natively; ``handoffs``: prompts by handoff.
    """

    directory: Path
    first: int = 9
    finish: tuple[str, int | str | None] = ("length", None)
    top: Sequence[tuple[int, float]] = ((9, -0.5), (10, -1.5), (11, -2.5))
    max_model_len: int = 512
    delay_s: float = 0.0
    defaults: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    cards: list[dict[str, Any]] | None = None
    render_fault: Fault = ""
    generate_fault: Fault = ""
    tokenize_fault: Fault = ""
    native_body: bytes = b'{"native": true}'
    native_events: Sequence[bytes] = (b'data: {"a":1}\n\n', b'data: {"a":2}\n\n', b"data: [DONE]\n\n")
    native_pace_s: float = 0.0
    native_status: int = 200
    cut_native: int | None = None
    calls: list[str] = field(default_factory=list)
    generated: list[dict[str, Any]] = field(default_factory=list)
    tokenized: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    handed_back: dict[str, Any] | None = None
    native_seen: list[bytes] = field(default_factory=list)
    hung_up: list[str] = field(default_factory=list)
    speaks: bool = False
    handoffs: dict[str, list[int]] = field(default_factory=dict)

    def app(self) -> web.Application:
        """The server's HTTP application."""
        self._tokenizer = Tokenizer.from_file(str(self.directory / "tokenizer.json"))
        app = web.Application(client_max_size=1 << 28)
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self._seen(self._native))
            app.router.add_post(f"{path}/render", self._seen(self._render))
        app.router.add_post("/inference/v1/generate", self._seen(self._generate))
        app.router.add_post("/tokenize", self._seen(self._tokenize))
        app.router.add_get("/v1/models", self._seen(self._models))
        app.router.add_get("/health", self._seen(self._health))
        return app

    def _seen(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.calls.append(request.path)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            try:
                return await handler(request)
            except (asyncio.CancelledError, ConnectionResetError):
                self.hung_up.append(request.path)
                raise

        return handle

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": "tiny", "object": "model", "root": str(self.directory), "parent": None}
        card["max_model_len"] = self.max_model_len  # type: ignore[assignment]
        return web.json_response({"object": "list", "data": self.cards or [card]})

    async def _fail(self, fault: Fault, request: web.Request) -> web.Response:
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "die":
            assert request.transport is not None
            request.transport.abort()
        if fault == "refuse":
            return _error(400, "no such thing", "BadRequestError", "thing")
        if fault == "disabled":
            return _error(403, DISABLED, "PermissionDeniedError")
        if fault == "missing":
            return web.json_response({"detail": "Not Found"}, status=404)
        return _error(500, "engine is dead", "InternalServerError")

    async def _render(self, request: web.Request) -> web.Response:
        if self.render_fault:
            return await self._fail(self.render_fault, request)
        try:
            body = await request.json()
            chat = "chat" in request.path
            text = "".join(each["content"] for each in body["messages"]) if chat else body["prompt"]
        except (ValueError, KeyError, TypeError) as error:
            return _error(400, f"1 validation error:\n  {error}", "Bad Request")
        model = body.get("model")
        if model not in {None, *(card["id"] for card in self.cards or [{"id": "tiny"}])}:
            message = f"The model `{model}` does not exist. Valid aliases: tiny."
            return _error(404, message, "NotFoundError", "model")
        if not text:
            message = "Either prompt or prompt_embeds must be provided and non-empty."
            return _error(400, message, "BadRequestError", "prompt")
        ids = text if isinstance(text, list) else self._tokenizer.encode(text).ids
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        new = min(self.max_model_len - len(ids), asked if asked is not None else (9999 if chat else 16))
        if new < 1:
            message = f"max_tokens must be at least 1, got {new}."
            return _error(400, message, "BadRequestError", "max_tokens")
        rendered = {
            "request_id": ("chatcmpl-" if chat else "cmpl-") + request.headers.get("x-request-id", "0123"),
            "token_ids": ids,
            "sampling_params": self._params(body, new) | self._logprobs(body, chat=chat),
            "model": model,
            "stream": body.get("stream", False),
            "stream_options": body.get("stream_options"),
            "cache_salt": body.get("cache_salt"),
            "priority": body.get("priority", 0),
            "features": None,
            "reasoning_parser_kwargs": None,
            **self.extra,
        }
        return web.json_response(rendered if chat else [rendered])

    def _params(self, body: dict[str, Any], new: int) -> dict[str, Any]:
        params: dict[str, Any] = {
            "temperature": 1.0,
            "stop_token_ids": [],
            "bad_words": [],
            "skip_clone": True,
        }
        stop = body.get("stop") or []
        params |= {"stop": [stop] if isinstance(stop, str) else stop, "max_tokens": new, **self.defaults}
        names = (*PASSED_ON, *SAMPLER_ONLY, *DETOKENIZER_ONLY)
        return params | {name: body[name] for name in names if body.get(name) is not None}

    @staticmethod
    def _logprobs(body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        asked = body.get("logprobs")
        if chat:
            asked = body.get("top_logprobs") or 0 if asked else None
        return {} if asked is None else {"logprobs": asked}

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.tokenize_fault:
            return await self._fail(self.tokenize_fault, request)
        body = await request.json()
        self.tokenized.append(body)
        text = body["prompt"] if "prompt" in body else "".join(each["content"] for each in body["messages"])
        ids = self._tokenizer.encode(text).ids
        return web.json_response({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids})

    async def _complete(self, request: web.Request, order: dict[str, Any]) -> web.Response:
        self.generated.append(order)
        if self.generate_fault and self.generate_fault not in ("disabled", "missing"):  # those lack the other endpoint
            return await self._fail(self.generate_fault, request)
        await asyncio.sleep(self.delay_s)
        reason, stop_reason = self.finish
        choice = {
            "index": 0,
            "text": "",
            "finish_reason": reason,
            "stop_reason": stop_reason,
            "token_ids": [self.first],
        }
        if (asked := order.get("logprobs")) is not None:
            least = dict(self.top).get(self.first, -9.0)
            entries = {self.first: least, **dict(self.top[:asked])}
            choice["logprobs"] = {
                "tokens": [f"token_id:{self.first}"],
                "token_logprobs": [least],
                "top_logprobs": [{f"token_id:{token}": value for token, value in entries.items()}],
            }
        reply = {"id": "cmpl-x", "model": "tiny", "choices": [choice], "usage": {"prompt_tokens_details": None}}
        return web.json_response(reply | {"kv_transfer_params": self.handed_back})

    async def _generate(self, request: web.Request) -> web.Response:
        order = await request.json()
        self.generated.append(order)
        if self.generate_fault:
            return await self._fail(self.generate_fault, request)
        size = self._tokenizer.get_vocab_size()
        if wrong := [each for each in order["token_ids"] if each >= size]:
            return _error(400, f"Token id {max(wrong)} is out of vocabulary", "BadRequestError")
        await asyncio.sleep(self.delay_s)
        self.handoffs[(order.get("kv_transfer_params") or {}).get("tilert_handoff", "")] = order["token_ids"]
        first = step(order["token_ids"]) if self.speaks else self.first
        reason, stop_reason = self.finish
        choice = {"index": 0, "finish_reason": reason, "stop_reason": stop_reason, "token_ids": [first]}
        usage = {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": None}
        reply = {"request_id": "x", "model": "tiny", "choices": [choice], "usage": usage}
        return web.json_response(reply | {"kv_transfer_params": self.handed_back})

    async def _native(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        if b'"tilert_host"' in raw and request.path == "/v1/completions":
            return await self._complete(request, await request.json())
        self.native_seen.append(raw)
        if self.generate_fault:
            return await self._fail(self.generate_fault, request)
        if b'"stream": true' not in raw and b'"stream":true' not in raw:
            await asyncio.sleep(self.native_pace_s)
            return web.Response(body=self.native_body, status=self.native_status, content_type="application/json")
        events = self._said(raw) if self.speaks else self.native_events
        reply = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", "x-own": "1"})
        await reply.prepare(request)
        for number, item in enumerate(events):
            await asyncio.sleep(self.native_pace_s)
            if number == self.cut_native:
                assert request.transport is not None
                request.transport.abort()
                break
            await reply.write(item)
        return reply

    def _said(self, raw: bytes) -> list[bytes]:
        """Events of a completion of token ids, as ``fake.model`` says it."""
        body = json.loads(raw)
        tokens = reply_of(body["prompt"], body["max_tokens"])
        events = []
        for number, token in enumerate(tokens, 1):
            reason = "length" if number == len(tokens) else None
            choice = {"index": 0, "text": "?", "token_ids": [token], "finish_reason": reason, "stop_reason": None}
            events.append(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        return [*events, b"data: [DONE]\n\n"]
