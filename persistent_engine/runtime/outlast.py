"""Waiting for something that must have ended before memory is given on.

Invariant: the caller goes on only when the work is over, however often it is cancelled meanwhile.
"""

import asyncio
from collections.abc import Coroutine

__all__ = ["outlast"]


async def outlast(work: Coroutine[None, None, None]) -> None:
    """Run `work`, which is bounded, to its end; a cancellation that came meanwhile is raised then.

    A bare `asyncio.shield` protects the work only: its caller, cancelled once more (a client that hangs up after its
    request was cancelled), would go on while the work still runs.
    """
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            interrupted = error
    task.result()
    if interrupted is not None:
        raise interrupted
