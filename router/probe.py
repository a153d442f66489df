"""Whether each class can be served: ``/health`` and ``/ready``.

Invariant: ``/health`` speaks of this process alone; ``/ready`` asks the servers behind it, and is bounded.
"""

import asyncio
from collections.abc import Sequence

import aiohttp

from router.config import RouterConfig
from router.traffic import Classes

__all__ = ["Probe"]

WITHIN_S = 2.0


class Probe:
    """Asks servers for their ``/health``."""

    def __init__(self, config: RouterConfig, classes: Classes, session: aiohttp.ClientSession) -> None:
        self._classes = classes
        self._session = session
        # What can serve by itself: a server, or the two of a pair.
        self._servers: dict[str, Sequence[tuple[str, ...]]] = {
            "prefill": [(url,) for url in config.prefill],
            "decode": [(node.url,) for node in config.decode],
            "native": [(url,) for url in config.native] + [(pair.prefill, pair.decode) for pair in config.native_pairs],
        }

    async def ready(self) -> dict[str, object]:
        """``{"ready": any class can be served, "classes": {name: {"ready", "reason"}}}``."""
        why = dict(zip(self._servers, await asyncio.gather(*map(self._why, self._servers)), strict=True))
        classes = {}
        for each in self._classes.all():
            parts = ("prefill", "decode") if each.pool == "speed" else ("native",)
            reasons = [reason for part in parts if (reason := why[part])]
            classes[each.name] = {"ready": not reasons, "reason": "; ".join(reasons) or None}
        return {"ready": any(state["ready"] for state in classes.values()), "classes": classes}

    async def _why(self, part: str) -> str | None:
        """Why no server of a kind can be used; None when one can."""
        servers = self._servers[part]
        if not servers:
            return f"no {part} server is configured"
        answers = await asyncio.gather(*map(self._all_healthy, servers))
        return None if any(answers) else f"no {part} server is healthy"

    async def _all_healthy(self, urls: tuple[str, ...]) -> bool:
        return all(await asyncio.gather(*map(self._healthy, urls)))

    async def _healthy(self, url: str) -> bool:
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                self._session.get(f"{url.rstrip('/')}/health") as reply,
            ):
                return reply.status == 200
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False
