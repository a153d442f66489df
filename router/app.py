"""The router's HTTP application: routes, and how every request ends.

Invariant: a request ends as a reply with an OpenAI body or as a client that has gone, and is recorded once.

aiohttp serves and calls. Relaying 16 streams of 200 events a second (benchmarks/http_stack.py, events per CPU
second, best of three): aiohttp 24,600, on uvloop 32,000; Starlette on uvicorn with aiohttp's client 25,600,
with httpx 11,200.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp import web

from router.admin import AdminKey, Roster, admin_routes
from router.background import Background
from router.body import look
from router.call import Call, Endpoint
from router.config import DecodeNodeConfig, RouterConfig
from router.errors import ApiError, BrokenBody, NotFound, TooLarge, TooSlow
from router.fleet import Fleet
from router.gauges import Gauges
from router.guard import OWNER, guard, owner_name
from router.identity import identify, name_reply
from router.keys import Keys
from router.ledger import Ledger
from router.listing import Listing
from router.metrics import Metrics
from router.native import NativePath, Pool, refusal
from router.node import Node
from router.openapi import add_document
from router.passing import Passing, passed_routes
from router.prefill import Prefill
from router.probe import Probe
from router.record import CLIENT_GONE, Record, trace_id
from router.reply import ChatReply, CompletionReply
from router.speed import SpeedPath
from router.status import Status, state, status_routes
from router.traffic import Classes
from router.transaction import Sources
from tilert_connector.ticket import read_keys

__all__ = ["build_app"]

_LOG = logging.getLogger("router")
CHAT = Endpoint("/v1/chat/completions", ChatReply, ("max_completion_tokens", "max_tokens"))
COMPLETIONS = Endpoint("/v1/completions", CompletionReply, ("max_tokens",))
# Below the 5 s for which vLLM's server keeps an idle connection, lest a request meets one that is being
# closed.
IDLE_S = 3.0


class _Front:
    """The parts, put together when the application starts."""

    def __init__(self, config: RouterConfig) -> None:
        self.config = config
        self.classes = Classes(config)
        self.tickets = read_keys(config.ticket_key_file)
        self.passing = Passing(self.classes, self._read, self.recorded)

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        config, timeouts = self.config, self.config.timeouts
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect)

        def connector() -> aiohttp.TCPConnector:
            return aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)

        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector()) as session,
            aiohttp.ClientSession(timeout=timeout, connector=connector(), auto_decompress=False) as raw_session,
        ):
            background = Background()

            def node(each: DecodeNodeConfig) -> Node:
                return Node(each, session, timeouts, config.queue_wait_s, self.tickets)

            self.fleet = Fleet(config, node, background)
            prefill_pool = Pool(config.prefill, "prefill")
            native_pool = self.native_pool = Pool(config.native, "native", config.native_pairs)
            prefill = Prefill(session, timeouts)
            self.speed = SpeedPath(config, Sources(self.fleet, prefill, prefill_pool, native_pool, session, timeouts))
            self.native = self.passing.native = NativePath(raw_session, native_pool, timeouts, background)
            self.models_path = self.native
            if not native_pool.servers:
                self.models_path = NativePath(raw_session, prefill_pool, timeouts, background)
            listed = native_pool if native_pool.servers else prefill_pool
            self.listing = Listing(session, listed, self.classes.aliases, timeouts.connect)
            self.metrics = Metrics()
            self.ledger = Ledger(self.metrics)
            pools = {"prefill": prefill_pool, "native": native_pool}
            self.metrics.show(Gauges(self.fleet, pools, lambda: self.ledger.open))
            self.roster = Roster(self.fleet, pools)
            self.probe = Probe(self.roster.entries, self.classes, session)
            yield
            await self.ledger.empty(timeouts.cancel)  # requests that were cut off have legs to end
            await self.fleet.close()
            await background.close(timeouts.cancel * 2)

    def completions(self, endpoint: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of an endpoint that both tiers serve."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.recorded(request, endpoint.path, lambda record: self._answer(request, endpoint, record))

        handle.__doc__ = f"OpenAI's `{endpoint.path}`, served by the tier of the request's class."
        return handle

    async def recorded(
        self, request: web.Request, path: str, answer: Callable[[Record], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer a request and end it in one of the ways that there are. ``path``: what log and metrics call it."""
        trace = trace_id(request.headers.get("traceparent", ""))
        record = Record(path, owner=owner_name(request), trace=trace)
        record.served_by = record.traffic_class = self.classes.default.name
        with self.ledger.request(record):
            try:
                return await answer(record)
            except ApiError as error:
                record.status = error.code
                record.fail(error)
                return _error(error, record)
            except asyncio.CancelledError:
                record.leave("the client has gone")
                raise
            except ConnectionResetError as error:
                record.leave(str(error))
                raise asyncio.CancelledError from None  # aiohttp then closes the connection without a word
            except Exception as error:
                _LOG.exception("a request failed in the router itself")
                record.error, record.kind = repr(error), type(error).__name__
                if record.status != CLIENT_GONE and request.transport is not None:
                    # Headers are out, so the only honest end is a broken connection.
                    request.transport.abort()
                    raise asyncio.CancelledError from None
                record.status = 500
                return _error(ApiError("internal error of the router"), record)

    async def _answer(self, request: web.Request, endpoint: Endpoint, record: Record) -> web.StreamResponse:
        body, key = look(await self._read(request)), request.get(OWNER)
        traffic, record.source = self.classes.choose(key, request.headers, body)
        record.served_by = record.traffic_class = traffic.name
        call = Call(request, endpoint, self.classes.prepared(body, key), traffic, record)
        if traffic.pool == "speed":
            try:
                return await self.speed.serve(call)
            except ApiError as error:
                if not error.detour or traffic.fallback == "none" or not self.native_pool.servers:
                    raise
                record.fallback, record.served_by = error.detour, self.classes.native_name
                _LOG.info("%s goes to the native pool: %s", endpoint.path, error.message[:200])
        return await self.native.relay(request, call.body.raw, call.headers(), record, body=call.body)

    async def _read(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self.config.timeouts.receive):
                return await request.read()
        except TimeoutError:
            raise TooSlow(f"the request did not arrive within {self.config.timeouts.receive:g} s") from None
        except web.RequestPayloadError as error:
            raise BrokenBody(f"The request body cannot be read: {error.__cause__ or error}") from None
        except web.HTTPRequestEntityTooLarge:
            raise TooLarge(f"the request body is larger than {self.config.body_limit} bytes (body_limit)") from None

    async def models(self, request: web.Request) -> web.StreamResponse:
        """``/v1/models`` as a server behind the router says it, and the aliases."""

        def answer(record: Record) -> Awaitable[web.StreamResponse]:
            if self.classes.aliases:
                return self.listing.answer(request, record)
            return self.models_path.relay(request, None, {}, record)

        return await self.recorded(request, "/v1/models", answer)

    async def health(self, _: web.Request) -> web.Response:
        """This process is up."""
        return web.json_response({"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """Whether classes can be served; ``?class=NAME`` asks for one of them alone."""
        name = request.query.get("class")
        if name is not None and name not in self.classes.names:
            missing = NotFound(f"class = {name[:100]!r} is no traffic class here; ask for one of {self.classes.names}")
            return web.Response(status=missing.code, body=missing.body(), content_type="application/json")
        state = await self.probe.ready(name)
        return web.json_response(state, status=200 if state["ready"] else 503)

    def status(self) -> Status:
        """What the status page shows."""
        return state(self.classes.all(), self.fleet.gate, self.roster, self.ledger)

    async def metrics_page(self, _: web.Request) -> web.Response:
        """Prometheus metrics."""
        return web.Response(body=self.metrics.text(), headers={"content-type": "text/plain; version=0.0.4"})


def _error(error: ApiError, record: Record) -> web.Response:
    headers = {"x-speedtier-class": record.served_by, "x-speedtier-node": record.node, **error.headers()}
    return web.Response(
        status=error.code,
        body=error.body(),
        content_type="application/json",
        headers={name: value for name, value in headers.items() if value},
    )


@web.middleware
async def _openai_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status not in (404, 405):
            raise
        missing = NotFound(refusal(request.method, request.path))
        return web.Response(status=error.status, body=missing.body(), content_type="application/json")


def build_app(config: RouterConfig) -> web.Application:
    """The application.

    Raises:
        ConfigError: the configuration contradicts itself.
    """
    front = _Front(config)
    keys, admin = Keys(config), AdminKey(config.admin_key_file)
    middlewares = [_openai_errors, guard(keys), identify(config)]
    app = web.Application(client_max_size=config.body_limit, middlewares=middlewares)
    app.on_response_prepare.append(name_reply)
    app.cleanup_ctx.append(front.run)
    app.add_routes(
        [
            web.post(CHAT.path, front.completions(CHAT)),
            web.post(COMPLETIONS.path, front.completions(COMPLETIONS)),
            web.get("/v1/models", front.models),
            web.get("/health", front.health),
            web.get("/ready", front.ready),
            web.get("/metrics", front.metrics_page),
            *admin_routes(admin, lambda: front.roster),
            *status_routes(admin, keys, front.status),
            *passed_routes(front.passing, (CHAT.path, COMPLETIONS.path)),
        ]
    )
    add_document(app)
    return app
