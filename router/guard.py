"""Lets in who has an API key, before any handler runs.

Invariant: with ``api_keys`` every path wants one, but for those in ``OPEN``, which say nothing of requests' content and
which load balancers and Prometheus ask without a key, as they do of vLLM; ``/status.json`` and ``/admin`` have a rule
of their own (``router.admin``).
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from router.config import ApiKey
from router.errors import Unauthorized
from router.keys import Keys

__all__ = ["OPEN", "OWNER", "guard", "owner_name"]

OPEN = frozenset({"/", "/health", "/ready", "/metrics", "/status.json"})
OWNER = web.RequestKey("owner", ApiKey)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def owner_name(request: web.Request) -> str:
    """The name of the key that a request came with; empty without one."""
    key = request.get(OWNER)
    return "" if key is None else key.name


def guard(keys: Keys) -> Middleware:
    """The middleware."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # OPTIONS asks what may be sent, before a browser sends the key; vLLM does not guard it either.
        if keys.wanted and request.method != "OPTIONS" and not _open(request.path):
            try:
                key = keys.owner(request.headers)
            except Unauthorized as error:
                return web.Response(
                    status=error.code, body=error.body(), content_type="application/json", headers=error.headers()
                )
            if key is not None:
                request[OWNER] = key
        return await handler(request)

    return check


def _open(path: str) -> bool:
    return path in OPEN or path == "/admin" or path.startswith("/admin/")
