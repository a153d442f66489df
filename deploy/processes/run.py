"""Runs a coroutine that owns processes, from the command line.

Invariant: the first SIGINT or SIGTERM cancels it and lets it end what it owns; further ones change nothing.
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

__all__ = ["run"]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; after a signal exit with 128 plus its number once `work` has cleaned up."""
    caught: list[int] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            if not caught:
                task.cancel()
            caught.append(number)

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        await work

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        if not caught:
            raise
        sys.exit(128 + caught[0])
