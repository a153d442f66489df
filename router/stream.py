"""The decode leg: ``POST /pd/decode`` as a stream of token ids.

Invariant: a stream ends in a ``done`` line or in an error; a connection that merely ends is an error.
"""

import asyncio

import aiohttp
import msgspec

from router.config import Timeouts
from router.errors import ApiError, Busy, PeerBroken, PeerTimeout
from router.logprobs import Reported

__all__ = ["Line", "TokenStream", "open_stream"]


class Fault(msgspec.Struct, frozen=True):
    """The error object of a decode node; ``code`` says what happened, in a word."""

    message: str = ""
    code: str | int = ""


class Line(msgspec.Struct, frozen=True):
    """One NDJSON line: token ids, with ``lp`` for each where asked for, or the end with its reason, or an error."""

    t: list[int] = []
    lp: list[Reported] | None = None
    done: bool = False
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: Fault | None = None


_LINE = msgspec.json.Decoder(Line)
LINE_LIMIT = 1 << 20
INNOCENT = frozenset({"kv_transfer_timeout", "kv_transfer_failed", "duplicate_rid", "invalid_request"})
"""Codes by which a node that is well says that a request cannot go on: what is at fault is elsewhere."""


def _fault(name: str, fault: Fault, status: int = 502, retry_after: str | None = None) -> ApiError:
    text = f"decode node {name}: {fault.message or fault.code or 'no reason given'}"
    if status == 429 or fault.code == "busy":
        seconds = int(retry_after) if retry_after and retry_after.isdigit() else 1
        return Busy(text, retry_after_s=max(1, seconds))
    blame = fault.code not in INNOCENT
    if status == 504 or fault.code == "kv_transfer_timeout":
        return PeerTimeout(text, blame=blame)
    return PeerBroken(text, blame=blame)


class TokenStream:
    """Lines of one decode request, in order."""

    def __init__(self, reply: aiohttp.ClientResponse, name: str, timeouts: Timeouts) -> None:
        self._reply = reply
        self._name = name
        self._wait_s = timeouts.handoff + timeouts.connect
        self._stall_s = timeouts.stall
        self._rest = b""
        self.done = False
        # One timer for the whole stream, which looks whether a read is late, and not one for each token.
        self._loop = asyncio.get_running_loop()
        self._waiting: float | None = None
        self._late = False
        self._watch: asyncio.TimerHandle | None = self._loop.call_later(self._wait_s, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._waiting is None else self._waiting) + self._wait_s
        if due <= now:
            self._late, self._watch = True, None
            self._reply.close()  # ends the read that is late
        else:
            self._watch = self._loop.call_at(due, self._look)

    def _unwatched(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def lines(self) -> list[Line]:
        """The next lines that are here, at least one; the last of them may be the ``done`` line.

        Raises:
            Busy, PeerBroken, PeerTimeout: the node says so, goes silent or hangs up.
        """
        while True:
            self._waiting = self._loop.time()
            try:
                chunk = await self._reply.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                if self._late:
                    text = f"decode node {self._name} sent no token for {self._wait_s:g} s"
                    raise PeerTimeout(text) from None
                raise PeerBroken(f"decode node {self._name} broke off: {error}") from error
            finally:
                self._waiting = None
            if not chunk:
                raise PeerBroken(f"decode node {self._name} ended the stream before it was done")
            self._heard()
            whole, end, self._rest = (self._rest + chunk).rpartition(b"\n")
            if len(self._rest) > LINE_LIMIT:
                raise PeerBroken(f"decode node {self._name} sent a line of more than {LINE_LIMIT} bytes")
            if end and (found := self._decode(whole)):
                return found

    def _heard(self) -> None:
        if self._wait_s != self._stall_s:  # after the first token: the shorter patience, from now on
            self._wait_s = self._stall_s
            self._unwatched()
            self._watch = self._loop.call_later(self._wait_s, self._look)

    def _decode(self, raw: bytes) -> list[Line]:
        try:
            lines = _LINE.decode_lines(raw)
        except msgspec.MsgspecError as error:
            raise PeerBroken(f"decode node {self._name} sent a line that is no good: {error}") from error
        for line in lines:
            if line.error is not None:
                raise _fault(self._name, line.error)
            if line.done:
                self.done = True
                self._unwatched()
        return lines

    async def drain(self) -> None:
        """Read to the ``done`` line."""
        while not self.done:
            await self.lines()

    async def finish(self, within_s: float) -> None:
        """After the ``done`` line: read to the end of the reply, so that the connection can serve the next."""
        try:
            async with asyncio.timeout(within_s):
                while await self._reply.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            self._reply.close()
        else:
            self._reply.release()

    def close(self) -> None:
        """Hang up; unless the stream was done, the node takes that as a cancel."""
        self._unwatched()
        self._reply.close()


async def open_stream(
    session: aiohttp.ClientSession,
    url: str,
    name: str,
    order: dict[str, object],
    headers: dict[str, str],
    timeouts: Timeouts,
) -> TokenStream:
    """Order tokens from a decode node.

    Raises:
        Busy, PeerBroken, PeerTimeout: it refuses or does not answer.
    """
    wait_s = timeouts.handoff + timeouts.connect
    try:
        async with asyncio.timeout(wait_s):
            reply = await session.post(f"{url}/pd/decode", json=order, headers=headers)
            if reply.status == 200:
                return TokenStream(reply, name, timeouts)
            async with reply:
                raw = await reply.read()
    except TimeoutError:
        raise PeerTimeout(f"decode node {name} did not answer within {wait_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise PeerBroken(f"decode node {name} cannot be reached: {error}") from error
    try:
        fault = msgspec.json.decode(raw, type=Line).error or Fault()
    except msgspec.MsgspecError:
        fault = Fault(message=raw[:200].decode(errors="replace"))
    raise _fault(name, fault, reply.status, reply.headers.get("retry-after"))
