"""A slot that a decode node keeps for one handoff, before its prefill begins.

Invariant: the node keeps it while the connection lasts, until the prefill server offers the state; hanging up gives
it back.
"""

import asyncio

import aiohttp

from router.errors import Busy, PeerBroken, PeerTimeout

__all__ = ["Hold", "open_hold"]


class Hold:
    """An open lease."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    def close(self) -> None:
        """Give the slot up, unless it was used."""
        self._reply.close()

    async def finish(self, within_s: float) -> None:
        """After it was used: read to the end, so that the connection can serve the next."""
        try:
            async with asyncio.timeout(within_s):
                await self._reply.read()
        except (TimeoutError, aiohttp.ClientError, OSError):
            self._reply.close()
        else:
            self._reply.release()


async def open_hold(
    session: aiohttp.ClientSession, url: str, name: str, handoff: str, wait_s: float, connect_s: float
) -> Hold:
    """Ask for a slot; waits in the node's queue, which all routers share, for up to ``wait_s`` seconds.

    Raises:
        Busy: none became free.
        PeerBroken, PeerTimeout: the node does not answer.
    """
    try:
        async with asyncio.timeout(wait_s + connect_s):
            reply = await session.post(f"{url}/pd/lease", json={"rid": handoff, "wait_s": wait_s})
            try:
                if reply.status == 200:
                    return Hold(reply)
                raw = (await reply.read())[:300].decode(errors="replace")
            except BaseException:
                reply.close()
                raise
    except TimeoutError:
        raise PeerTimeout(f"decode node {name} did not answer /pd/lease within {wait_s + connect_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise PeerBroken(f"decode node {name} cannot be reached: {error}") from error
    reply.release()
    if reply.status == 429:
        raise Busy(f"decode node {name}: every slot is taken")
    raise PeerBroken(f"decode node {name} answered /pd/lease with {reply.status}: {raw}")
