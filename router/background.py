"""Work that outlives the request it belongs to, such as telling a decode node that its client has gone.

Invariant: every task is held until it ends, and none outlives the router.
"""

import asyncio
import logging
from collections.abc import Coroutine

__all__ = ["Background"]

_LOG = logging.getLogger("router")


class Background:
    """The running tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run ``work`` to its end, whatever becomes of the caller."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("background work failed", exc_info=error)

    async def close(self, within_s: float) -> None:
        """Let the tasks end, and cancel what has not after ``within_s`` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
