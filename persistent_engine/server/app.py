"""HTTP of a decode node: /pd/decode, /pd/lease, /pd/cancel, /health, /decode_status, /capabilities, /metrics.

Source of paths and fields: TileRT's decode node (package versions 0.1.5 and 0.1.6), extended by `stop_reason`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from persistent_engine.server.errors import Answer, error_body
from persistent_engine.server.leases import Leases
from persistent_engine.server.metrics import Metrics
from persistent_engine.server.node import DecodeNode
from persistent_engine.server.request import EXECUTED, parse
from persistent_engine.server.session import Session, Sessions
from speedtier import __version__

__all__ = ["build_app"]

log = logging.getLogger("speedtier.decode")
LARGEST_BODY = 1 << 20
CANCEL_S = 5.0
"""The longest that /pd/cancel waits for the session to let go before it answers."""


class _Routes:
    """Handlers over one node."""

    def __init__(self, node: DecodeNode) -> None:
        self.node, self.sessions = node, Sessions(node)
        self.metrics = Metrics(self.sessions)

    async def decode(self, http: web.Request) -> web.StreamResponse:
        """POST /pd/decode."""
        try:
            session = self.sessions.admit(parse(await http.read()))
        except Answer as answer:
            self.metrics.requests.labels(answer.code).inc()
            return answer.response()
        session.task = asyncio.current_task()
        end = "client_gone"
        try:
            response, end = await self._serve(http, session)
            return response
        finally:
            self.sessions.leave(session)
            self._record(session, end)

    async def _serve(self, http: web.Request, session: Session) -> tuple[web.StreamResponse, str]:
        """The response, and what it ended as."""
        try:
            async with session.holding() as held, contextlib.aclosing(session.decode(held)) as source:
                if session.request.stream:
                    return await self._stream(http, session, source), session.reason
                ids = [token async for group in source for token in group]
            body = {"rid": session.request.rid, "token_ids": ids, "seq_len": held.tokens + len(ids), **_end(session)}
            return web.json_response(body), session.reason
        except Answer as answer:
            return answer.response(), answer.code
        except asyncio.CancelledError:
            if not session.cancel_reason:
                raise
            _uncancel()
            return Answer(499, "cancelled", session.cancel_reason).response(), "cancelled"

    async def _stream(
        self, http: web.Request, session: Session, source: AsyncIterator[list[int]]
    ) -> web.StreamResponse:
        """NDJSON: `{"t": [ids]}` lines, then one `{"done": true, ...}` or `{"error": ...}` line."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"})
        last: dict[str, Any]
        try:
            await response.prepare(http)
            async for ids in source:
                await response.write(msgspec.json.encode({"t": ids}) + b"\n")
            last = {"done": True, "n": session.tokens, **_end(session)}
        except Answer as answer:
            last = error_body(answer)
        except ConnectionResetError:
            raise
        except Exception as error:  # the headers are out: only a last line can still tell
            log.exception("decode rid=%s", session.request.rid)
            last = error_body(Answer(500, "internal_error", f"/pd/decode: {error!r}"))
        except asyncio.CancelledError:
            if not session.cancel_reason:
                raise
            _uncancel()
            last = {"done": True, "n": session.tokens, **_end(session)}
        await response.write(msgspec.json.encode(last) + b"\n")
        await response.write_eof()
        return response

    def _record(self, session: Session, end: str) -> None:
        self.metrics.requests.labels(end).inc()
        self.metrics.tokens.inc(session.tokens)
        timing = session.timing_ms()
        if session.waited:
            self.metrics.wait.observe(session.waited)
            self.metrics.decode.observe(timing["decode"] / 1e3)
        log.info("decode rid=%s end=%s tokens=%d timing_ms=%s", session.request.rid, end, session.tokens, timing)

    async def cancel(self, http: web.Request) -> web.Response:
        """POST /pd/cancel {rid}."""
        try:
            raw = msgspec.json.decode(await http.read())
            rid = raw.get("rid") if isinstance(raw, dict) else None
        except msgspec.MsgspecError:
            rid = None
        if not isinstance(rid, str) or not rid:
            return Answer(400, "invalid_request", "/pd/cancel wants a JSON object with `rid`, a string").response()
        session = self.sessions.open.get(rid)
        if session is not None:
            session.cancel("cancelled by /pd/cancel")
            await session.gone(CANCEL_S)
        elif not await self.node.receiver.cancel(rid, "cancelled by /pd/cancel"):
            return Answer(404, "unknown_rid", f"rid {rid!r} is not open here").response()
        return web.json_response({"rid": rid, "cancelled": True})

    async def health(self, http: web.Request) -> web.Response:
        """GET /health: 200 while the engine works."""
        failure = self.node.engine.failure
        if failure is not None:
            return Answer(503, "engine_failed", failure).response()
        return web.json_response({"status": "ok"})

    async def status(self, http: web.Request) -> web.Response:
        """GET /decode_status: slots, sessions, handoffs."""
        sessions = {rid: {"tokens": one.tokens, **one.timing_ms()} for rid, one in self.sessions.open.items()}
        body = {"busy": self.node.engine.busy, "sessions": sessions, **self.node.receiver.status()}
        return web.json_response(body)

    async def capabilities(self, http: web.Request) -> web.Response:
        """GET /capabilities: what this node can do, and the fingerprint that a prefill server must match."""
        node = self.node
        body = {
            "model": node.config.model,
            "architecture": node.facts.architecture,
            "max_tokens": node.capacity,
            "slots": node.config.slots,
            "instance": node.receiver.instance,
            "ctrl_port": node.receiver.ctrl_port,
            "data_port": node.receiver.data_port,
            "transport": node.config.receiver.transport,
            "version": __version__,
            "layout": msgspec.to_builtins(node.layout),
            "sampling": list(EXECUTED),
            "lease": True,
            "fingerprint": msgspec.to_builtins(node.fingerprint),
        }
        return web.json_response(body)

    async def scrape(self, http: web.Request) -> web.Response:
        """GET /metrics."""
        return web.Response(body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _end(session: Session) -> dict[str, Any]:
    return {
        "finish_reason": session.reason,
        "stop_reason": session.stop_reason,
        "timing_ms": session.timing_ms(),
    }


def _uncancel() -> None:
    """The interruption was ours and is dealt with: the task may await again."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


@web.middleware
async def _error_objects(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every error as an error object, those of unknown paths and of our own faults too."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        return Answer(error.status, error.reason.lower().replace(" ", "_"), message).response()
    except ConnectionResetError:  # the client went away while it was written to: its session has ended already
        log.info("%s %s: the client went away", request.method, request.path)
        return web.Response(status=499)
    except Exception as error:  # nothing that one request does may cost another, and nobody gets a page of HTML
        log.exception("%s %s", request.method, request.path)
        return Answer(500, "internal_error", f"{request.method} {request.path}: {error!r}").response()


def build_app(node: DecodeNode) -> web.Application:
    """The application over a node that was started. Run it with `handler_cancellation`, so that a client that
    leaves interrupts its session."""
    routes = _Routes(node)
    app = web.Application(middlewares=[_error_objects], client_max_size=LARGEST_BODY)
    app.router.add_post("/pd/decode", routes.decode)
    app.router.add_post("/pd/lease", Leases(node.receiver).lease)
    app.router.add_post("/pd/cancel", routes.cancel)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/decode_status", routes.status)
    app.router.add_get("/capabilities", routes.capabilities)
    app.router.add_get("/metrics", routes.scrape)
    return app
