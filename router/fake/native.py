"""A server that answers every path, and remembers each request as it came.

Invariant: `seen` holds one entry for each HTTP request that reached it, whatever its path, so a test can count them.
"""

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

__all__ = ["FakeNative", "Seen"]


@dataclass(frozen=True)
class Seen:
    """One request: its target as sent, headers with lower-case names, and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeNative:
    """One server.

    ``status``, ``body``, ``headers``: its answer. ``keeps``: ends of paths that it knows; any other is a 404, unless it
    is empty. ``delay_s``: the time that an answer takes.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    keeps: frozenset[str] = frozenset()
    delay_s: float = 0.0
    seen: list[Seen] = field(default_factory=list)

    def app(self) -> web.Application:
        """The server's HTTP application."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.raw_path, headers, body))
        await asyncio.sleep(self.delay_s)
        known = not self.keeps or request.path.rpartition("/")[2] in self.keeps
        headers = {"content-type": "application/json", **self.headers}
        return web.Response(status=self.status if known else 404, body=self.body, headers=headers)
