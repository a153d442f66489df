"""The rest of a reply from the native pool, as token ids.

Invariant: it looks to its reader like the decode leg that it replaces; the sampling parameters are the resolved ones,
each sent, so that the server's own defaults do not come in.
"""

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec

from router.config import Timeouts
from router.errors import PeerBroken, PeerTimeout
from router.first_leg import COMPLETIONS, completion_order
from router.headers import json_headers
from router.rendered import Rendered
from router.stream import Line

__all__ = ["Continuation", "continue_natively"]


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: dict[str, object] | None = None


_EVENT = msgspec.json.Decoder(_Event)


class Continuation:
    """A streamed completion of token ids."""

    def __init__(self, reply: aiohttp.ClientResponse, url: str, timeouts: Timeouts) -> None:
        self._reply = reply
        self._url = url
        self._stall_s = timeouts.native
        self._rest = b""

    async def lines(self) -> list[Line]:
        """The next tokens, at least one line. Raises: PeerBroken, PeerTimeout."""
        while True:
            try:
                async with asyncio.timeout(self._stall_s):
                    chunk = await self._reply.content.readany()
            except TimeoutError:
                raise PeerTimeout(f"native server {self._url} sent nothing for {self._stall_s:g} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise PeerBroken(f"native server {self._url} broke off: {error}") from error
            if not chunk:
                raise PeerBroken(f"native server {self._url} ended the stream before it was done")
            *events, self._rest = (self._rest + chunk).split(b"\n\n")
            if lines := [line for event in events for line in self._lines(event)]:
                return lines

    def _lines(self, raw: bytes) -> list[Line]:
        data = raw.strip().removeprefix(b"data:").strip()
        if not data or data == b"[DONE]":
            return []
        try:
            event = _EVENT.decode(data)
        except msgspec.MsgspecError as error:
            raise PeerBroken(f"native server {self._url} sent an event that is no good: {error}") from error
        if event.error is not None:
            raise PeerBroken(f"native server {self._url}: {event.error.get('message')}")
        lines = []
        for choice in event.choices:
            if choice.token_ids:
                lines.append(Line(t=choice.token_ids))
            if choice.finish_reason is not None:
                stop = choice.stop_reason if isinstance(choice.stop_reason, int) else None
                lines.append(Line(done=True, finish_reason=choice.finish_reason, stop_reason=stop))
        return lines

    def natural(self) -> None:
        """Nothing: hanging up ends it."""

    def end(self) -> None:
        """Hang up, which ends the request there."""
        self._reply.close()


async def continue_natively(
    session: aiohttp.ClientSession,
    url: str,
    rendered: Rendered,
    new: int,
    headers: Mapping[str, str],
    timeouts: Timeouts,
) -> Continuation:
    """``new`` tokens at most after those of ``rendered``. Raises: PeerBroken, PeerTimeout."""
    order = completion_order(rendered, None, new, stream=True)
    try:
        async with asyncio.timeout(timeouts.prefill):
            reply = await session.post(url + COMPLETIONS, json=order, headers=json_headers(headers))
            if reply.status == 200:
                return Continuation(reply, url, timeouts)
            async with reply:
                raw = (await reply.read())[:300].decode(errors="replace")
    except TimeoutError:
        raise PeerTimeout(f"native server {url} did not answer within {timeouts.prefill:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise PeerBroken(f"native server {url} cannot be reached: {error}") from error
    raise PeerBroken(f"native server {url} answered {COMPLETIONS} with {reply.status}: {raw}")
