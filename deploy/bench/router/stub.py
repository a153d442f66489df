"""The servers behind the router, each in a process of its own: a prefill server that is a native one as well, and a
decode node.

Invariant: every reply is made before the first request comes.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from deploy.bench.router.pace import Paced
from deploy.bench.router.wire import LAST, Server, chunk, head, whole

__all__ = ["SLOTS", "serve_decode", "serve_prefill"]

SLOTS = 256
ROOM = 100_000_000
"""Tokens that a slot holds: streams end when their client leaves."""
SHORT = 4
"""Tokens of a reply that ends by itself; any other that a client asks for does not."""
SHORT_MARK = b'"max_tokens":%d,' % SHORT
FIRST = 300
IDS = range(300, 700)
"""Ordinary tokens of the tokenizer that the router is given."""
EVENT = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"stub","choices":[{"index"'
    b':0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
)


LEASED = head("application/x-ndjson") + chunk(b'{"rid":"x"}\n') + LAST


class _Stub(Server):
    _paced: Paced | None = None

    def pause_writing(self) -> None:
        if self._paced is not None:
            self._paced.pause(True)

    def resume_writing(self) -> None:
        if self._paced is not None:
            self._paced.pause(False)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.resume_writing()

    def stream(self, kind: str, chunks: Sequence[bytes], count: int, rate: float, last: bytes) -> None:
        self.transport.write(head(kind))
        self._paced = Paced(self.transport, chunks, count, rate, lambda: self.transport.write(chunk(last) + LAST))


class _Prefill(_Stub):
    """`fixed`: whole replies by path."""

    def __init__(self, fixed: dict[bytes, bytes]) -> None:
        super().__init__()
        self._fixed = fixed

    def answer(self, path: bytes, body: bytes) -> None:
        if path != b"/v1/chat/completions":
            short = path.endswith(b"/render") and SHORT_MARK in body
            self.transport.write(self._fixed[path + b"?short" if short else path])
            return
        asked: dict[str, Any] = msgspec.json.decode(body)
        count, rate = asked["max_tokens"], float(asked["metadata"]["rate"])
        self.stream("text/event-stream; charset=utf-8", [chunk(EVENT)], count, rate, b"data: [DONE]\n\n")


class _Decode(_Stub):
    rate = 100.0

    def __init__(self, capabilities: bytes, lines: Sequence[bytes]) -> None:
        super().__init__()
        self._capabilities, self._lines = capabilities, lines

    def answer(self, path: bytes, body: bytes) -> None:
        if path == b"/capabilities":
            self.transport.write(self._capabilities)
        elif path.startswith(b"/rate/"):
            _Decode.rate = float(path.removeprefix(b"/rate/"))
            self.transport.write(whole(b"{}"))
        elif path == b"/pd/lease":  # kept at once, and offered at once
            self.transport.write(LEASED)
        elif path == b"/pd/decode":
            count = msgspec.json.decode(body)["max_tokens"]
            last = b'{"done":true,"n":%d,"finish_reason":"length","stop_reason":null}\n' % count
            self.stream("application/x-ndjson", self._lines, count, _Decode.rate, last)
        else:
            self.transport.write(whole(b"{}"))


def serve_prefill(port: int, prompt: int) -> None:
    """Serve until the process is ended. `prompt`: tokens of every prompt."""
    params = {"temperature": 0.0, "max_tokens": ROOM // 2, "top_p": 1.0}
    rendered: dict[str, Any] = {
        "request_id": "chatcmpl-0",
        "token_ids": [IDS[i % len(IDS)] for i in range(prompt)],
        "model": "stub",
    }
    rendered |= {"sampling_params": params, "stream": True, "cache_salt": None, "priority": 0, "features": None}
    choice = {"index": 0, "finish_reason": "length", "stop_reason": None, "token_ids": [FIRST]}
    fixed = {
        "/health": {},
        "/v1/models": {"object": "list", "data": [{"id": "stub", "object": "model", "root": "", "parent": None}]},
        "/v1/chat/completions/render": rendered,
        "/v1/chat/completions/render?short": {**rendered, "sampling_params": {**params, "max_tokens": SHORT}},
        "/inference/v1/generate": {"request_id": "x", "model": "stub", "choices": [choice], "usage": None},
    }
    replies = {path.encode(): whole(msgspec.json.encode(body)) for path, body in fixed.items()}
    _serve(lambda: _Prefill(replies), port)


def serve_decode(port: int, slots: int = SLOTS) -> None:
    """Serve until the process is ended."""
    sampling = ["temperature", "top_k", "top_p", "min_p", "seed", "stop_token_ids", "ignore_eos", "eos_token_ids"]
    able = {
        "max_tokens": ROOM,
        "slots": slots,
        "lease": True,
        "sampling": sampling,
        "ctrl_port": 1,
        "fingerprint": {},
        "instance": "s",
    }
    lines = [chunk(b'{"t":[%d]}\n' % each) for each in IDS]
    _serve(lambda: _Decode(whole(msgspec.json.encode(able)), lines), port)


def _serve(make: Callable[[], asyncio.Protocol], port: int) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", port, backlog=1024)
        async with server:
            await server.serve_forever()

    asyncio.run(run())
