"""The HTTP of the status page.

Invariant: where the router has an admin key, ``/status.json`` wants it; where it has none but API keys, it wants any of
those; else it is open. The page itself holds no data and is open.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web

from router.admin import AdminKey
from router.errors import Unauthorized
from router.keys import Keys
from router.status.state import Status

__all__ = ["status_routes"]

_PAGE = Path(__file__).with_name("page.html")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"
HEADERS = {
    "content-security-policy": f"{_POLICY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def status_routes(admin: AdminKey, keys: Keys, state: Callable[[], Status]) -> list[web.RouteDef]:
    """The routes; ``state`` is asked for at each request."""
    page = _PAGE.read_bytes()

    async def show(_: web.Request) -> web.Response:
        """A page that shows servers, queues and live tokens a second."""
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=HEADERS)

    async def tell(request: web.Request) -> web.Response:
        """What the page shows, as JSON."""
        try:
            if admin and not admin.opens(request.headers):
                raise Unauthorized("/status.json wants the key of admin_key_file as `Authorization: Bearer KEY`.")
            if not admin:
                keys.owner(request.headers)
        except Unauthorized as error:
            return web.Response(
                status=error.code, body=error.body(), content_type="application/json", headers=error.headers()
            )
        return web.Response(body=msgspec.json.encode(state()), content_type="application/json", headers=HEADERS)

    return [web.get("/", show), web.get("/status.json", tell)]
