"""Endpoints that the native tier alone serves: vLLM's own, passed through.

Invariant (R7, R10): what goes through was looked into first, as every request body is; a class of the speed tier that
may fall back does so here, and says so, and one that may not is refused.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from router.body import Body, look, look_form
from router.call import told
from router.errors import NotFound, NotSupported
from router.guard import OWNER
from router.native import PASSED, SOCKETS, NativePath, Passed, for_operators, refusal
from router.record import Record
from router.traffic import Classes

__all__ = ["Passing", "passed_routes"]

Read = Callable[[web.Request], Awaitable[bytes]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Recorded = Callable[
    [web.Request, str, Callable[[Record], Awaitable[web.StreamResponse]]], Awaitable[web.StreamResponse]
]
NAME = r"[\w-][\w.:-]*"
"""What stands for a name in a path: no slash, and nothing that is ``.`` or ``..``."""


class Passing:
    """Answers them. ``read``: a request's body, bounded; ``recorded``: see ``router.app``."""

    def __init__(self, classes: Classes, read: Read, recorded: Recorded) -> None:
        self.native: NativePath
        self._classes = classes
        self._read = read
        self._recorded = recorded

    def handler(self, endpoint: Passed) -> Handler:
        """The handler of one endpoint."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._recorded(request, endpoint.path, lambda record: self._answer(request, endpoint, record))

        handle.__doc__ = f"vLLM's `{endpoint.path}`, passed through."
        return handle

    async def sockets(self, request: web.Request) -> web.StreamResponse:
        """Not relayed: WebSockets."""
        return await self._recorded(request, request.path, lambda _: _no_sockets(request))

    async def _answer(self, request: web.Request, endpoint: Passed, record: Record) -> web.StreamResponse:
        record.served_by = record.traffic_class = self._classes.native_name
        if for_operators(request.path):
            raise NotFound(refusal(request.method, request.path))
        if "websocket" in request.headers.get("upgrade", "").lower():
            return await _no_sockets(request)
        raw = await self._read(request) if request.body_exists else None
        body: Body | None = None
        if endpoint.body == "form" and request.content_type == "multipart/form-data":
            look_form(raw or b"", request.headers.get("content-type", ""))
        elif raw:
            body = look(raw)
            if endpoint.generates:
                self._choose(request, body, endpoint, record)
            body = self._classes.prepared(body, request.get(OWNER))
            raw = body.raw
        # A new response is kept nowhere yet, unless it goes on from one that is.
        search = endpoint.kept and (body is None or body.get("previous_response_id") is not None)
        return await self.native.relay(request, raw, told(record), record, body=body, search=search)

    def _choose(self, request: web.Request, body: Body, endpoint: Passed, record: Record) -> None:
        traffic, record.source = self._classes.choose(request.get(OWNER), request.headers, body)
        record.traffic_class = traffic.name
        if traffic.pool == "native":
            record.served_by = traffic.name
        elif traffic.fallback == "none":
            raise NotSupported(
                f"class {traffic.name!r} is not served at {endpoint.path}, and it falls back to no other pool; send "
                "the request in a native class"
            )
        else:
            record.fallback = "endpoint"


async def _no_sockets(request: web.Request) -> web.StreamResponse:
    raise NotSupported(f"{request.path}: the router relays no WebSockets; connect to a vLLM server itself")


def passed_routes(passing: Passing, shared: tuple[str, ...]) -> list[web.RouteDef]:
    """The routes. ``shared``: paths that both tiers serve, of which OPTIONS is passed."""
    routes = [web.route("OPTIONS", path, passing.handler(Passed(path, ("OPTIONS",), "none"))) for path in shared]
    routes += [web.get(path, passing.sockets, allow_head=False) for path in SOCKETS]
    for each in PASSED:
        path, handler = each.path.replace("}", f":{NAME}}}"), passing.handler(each)
        routes += [web.route(method, path, handler) for method in (*each.methods, "OPTIONS")]  # GET brings HEAD
    return routes
