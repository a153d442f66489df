"""The HTTP of ``/admin``.

``GET /admin/nodes``; ``POST /admin/nodes`` with an ``Addition``; ``POST /admin/nodes/NAME/drain`` and ``/resume``;
``DELETE /admin/nodes/NAME?within_s=300``. Where servers of two kinds share an address, ``?kind=`` says which is meant.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from router.admin.key import AdminKey
from router.admin.roster import KINDS, Addition, Entry, Roster
from router.errors import ApiError, BadRequest, NotFound, Unauthorized

__all__ = ["admin_routes"]

_LOG = logging.getLogger("router")
MOST_S = 3600.0
DRAIN_S = 300.0
Act = Callable[[web.Request], Awaitable[tuple[int, object]]]


def admin_routes(key: AdminKey, roster: Callable[[], Roster]) -> list[web.RouteDef]:
    """The routes; ``roster`` is asked for when the application runs."""
    routes = _Routes(roster)
    name = "/admin/nodes/{name:[^/]+}"
    made: list[tuple[str, str, Act]] = [
        ("GET", "/admin/nodes", routes.show),
        ("POST", "/admin/nodes", routes.add),
        ("POST", name + "/drain", routes.drain),
        ("POST", name + "/resume", routes.resume),
        ("DELETE", name, routes.remove),
    ]
    return [web.route(method, path, _guarded(key, act)) for method, path, act in made]


def _guarded(key: AdminKey, act: Act) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            if not key:
                raise NotFound(f"{request.method} {request.path} is no endpoint of this router")
            if not key.opens(request.headers):
                raise Unauthorized("/admin wants the key of admin_key_file; send it as `Authorization: Bearer KEY`.")
            status, answer = await act(request)
        except ApiError as error:
            headers = error.headers()
            return web.Response(status=error.code, body=error.body(), content_type="application/json", headers=headers)
        return web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")

    handle.__doc__ = act.__doc__
    return handle


class _Routes:
    def __init__(self, roster: Callable[[], Roster]) -> None:
        self._roster = roster

    async def show(self, _: web.Request) -> tuple[int, object]:
        """All servers and how they are."""
        return 200, {"nodes": self._roster().entries()}

    async def add(self, request: web.Request) -> tuple[int, object]:
        """Take a server into service."""
        try:
            given = msgspec.json.decode(await request.read(), type=Addition)
        except msgspec.MsgspecError as error:
            raise BadRequest(f"the body is no server to add: {error}; send kind (one of {KINDS}) and url") from None
        return 201, _logged("added", self._roster().add(given))

    async def drain(self, request: web.Request) -> tuple[int, object]:
        """Give a server no new requests."""
        found = self._roster().drain(request.match_info["name"], _kind(request), True)
        return 200, _logged("draining", found)

    async def resume(self, request: web.Request) -> tuple[int, object]:
        """Give a drained server requests again."""
        found = self._roster().drain(request.match_info["name"], _kind(request), False)
        return 200, _logged("resumed", found)

    async def remove(self, request: web.Request) -> tuple[int, object]:
        """Drain a server, wait for its requests, and forget it."""
        text = request.query.get("within_s", str(DRAIN_S))
        try:
            within_s = float(text)
        except ValueError:
            within_s = -1.0
        if not 0 <= within_s <= MOST_S:
            raise BadRequest(f"within_s = {text[:40]!r}: send seconds from 0 to {MOST_S:g}", param="within_s")
        found = await self._roster().remove(request.match_info["name"], _kind(request), within_s)
        return 200, _logged("removed", found)


def _kind(request: web.Request) -> str | None:
    kind = request.query.get("kind")
    if kind is not None and kind not in KINDS:
        raise BadRequest(f"kind = {kind[:40]!r}: send one of {', '.join(KINDS)}", param="kind")
    return kind


def _logged(what: str, entry: Entry) -> Entry:
    _LOG.info("admin: %s %s %s", what, entry.kind, entry.name)
    return entry
