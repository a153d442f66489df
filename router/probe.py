"""Whether each class can be served: ``/health`` and ``/ready``.

Invariant: ``/health`` speaks of this process alone; ``/ready`` asks the servers that are behind it now, and is bounded.
"""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from router.admin import Entry
from router.traffic import Classes

__all__ = ["Probe"]

WITHIN_S = 2.0


class Probe:
    """Asks servers for their ``/health``. ``entries``: see ``Roster.entries``."""

    def __init__(
        self, entries: Callable[[], Sequence[Entry]], classes: Classes, session: aiohttp.ClientSession
    ) -> None:
        self._entries = entries
        self._classes = classes
        self._session = session

    async def ready(self, name: str | None = None) -> dict[str, object]:
        """``{"ready": any class can be served, "classes": {name: {"ready", "reason"}}}``; with ``name``, of that class
        alone."""
        kinds = ("prefill", "decode", "native")
        why = dict(zip(kinds, await asyncio.gather(*map(self._why, kinds)), strict=True))
        classes = {}
        for each in self._classes.all():
            if name not in (None, each.name):
                continue
            parts = ("prefill", "decode") if each.pool == "speed" else ("native",)
            reasons = [reason for part in parts if (reason := why[part])]
            classes[each.name] = {"ready": not reasons, "reason": "; ".join(reasons) or None}
        return {"ready": any(state["ready"] for state in classes.values()), "classes": classes}

    async def _why(self, kind: str) -> str | None:
        """Why no server of a kind can be used; None when one can."""
        found = [each for each in self._entries() if each.kind == kind]
        if not found:
            return f"no {kind} server is configured"
        taking = [each for each in found if each.state != "draining"]
        if not taking:
            return f"every {kind} server is being drained"
        answers = await asyncio.gather(*map(self._well, taking))
        return None if any(answers) else f"no {kind} server is healthy"

    async def _well(self, entry: Entry) -> bool:
        """Of a pair, both servers."""
        urls = [entry.url] if entry.prefill_url is None else [entry.url, entry.prefill_url]
        return all(await asyncio.gather(*map(self._healthy, urls)))

    async def _healthy(self, url: str) -> bool:
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                self._session.get(f"{url}/health") as reply,
            ):
                return reply.status == 200
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False
