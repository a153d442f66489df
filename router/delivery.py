"""From the first token to the end of the reply.

Invariant (R3): the first token goes to the client before anything is awaited from the decode node. After the
first byte an error is an event in the stream, and no chunk has a finish reason that neither leg gave.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from router.call import Call
from router.errors import ApiError
from router.logprobs import paired
from router.outlet import Outlet
from router.prefill import FirstToken
from router.reply import Reply
from router.stream import Line
from router.transaction import Transaction
from router.transcript import Delta, Transcript

__all__ = ["Delivery"]

Emit = Callable[[Sequence[Delta]], Awaitable[None]]


class Delivery:
    """One reply on its way. ``logprobs``: it shows those of its tokens."""

    def __init__(self, call: Call, legs: Transaction, transcript: Transcript, reply: Reply, *, logprobs: bool) -> None:
        self._call = call
        self._legs = legs
        self._transcript = transcript
        self._reply = reply
        self._logprobs = logprobs

    async def stream(self, first: FirstToken, outlet: Outlet) -> web.StreamResponse:
        """Send chunks as tokens come. Raises ``ApiError`` only before the first byte."""
        count = 0

        async def emit(deltas: Sequence[Delta]) -> None:
            nonlocal count
            pieces = [] if count else [self._reply.begin()]
            for delta in deltas:
                count += len(delta.ids)
                pieces.append(self._reply.chunk(delta, count))
                if delta.finish_reason is not None:
                    pieces.append(self._reply.end(count))
            await outlet.write(b"".join(pieces))

        try:
            await self._run(first, emit)
        except ApiError as error:
            if outlet.reply is None:
                raise
            # As vLLM does it: the error object as an event, then the end mark.
            self._call.record.fail(error)
            await outlet.write(b"data: " + error.body() + b"\n\ndata: [DONE]\n\n")
        assert outlet.reply is not None, "a reply has at least one chunk"
        return outlet.reply

    async def whole(self, first: FirstToken) -> web.StreamResponse:
        """Wait for the end and send one body."""
        steps: list[Delta] = []

        async def emit(deltas: Sequence[Delta]) -> None:
            steps.extend(deltas)

        await self._run(first, emit)
        body = self._reply.whole(steps)
        self._call.record.status = 200
        return web.Response(body=body, content_type="application/json", headers=self._call.headers())

    async def _run(self, first: FirstToken, emit: Emit) -> Delta:
        call, transcript = self._call, self._transcript
        delta = transcript.feed(
            [first.token], stopped=first.stopped, stop_reason=first.stop_reason, logprobs=first.logprobs
        )
        if delta.finish_reason is None:
            self._legs.follow()
        call.record.tokens(1)
        await emit([delta])
        if delta.finish_reason is None:
            # A task of its own: each token then wakes a few frames, and not those of the whole server below.
            delta = await asyncio.create_task(self._follow(emit))
        call.record.finish_reason = delta.finish_reason
        if not transcript.by_text:
            self._legs.natural()
        return delta

    async def _follow(self, emit: Emit) -> Delta:
        record = self._call.record
        with record.phase("handoff"):  # from the first token to the first that the decode node adds
            deltas = await self._some()
        record.handed(self._legs.answered)
        with record.phase("decode"):
            while True:
                record.tokens(sum([len(each.ids) for each in deltas]))
                await emit(deltas)
                if deltas[-1].finish_reason is not None:
                    return deltas[-1]
                deltas = await self._some()

    async def _some(self) -> list[Delta]:
        while True:
            if deltas := self._deltas(await self._legs.lines()):
                return deltas

    def _deltas(self, lines: Sequence[Line]) -> list[Delta]:
        deltas: list[Delta] = []
        for line in lines:
            if line.t:
                logprobs = paired(line.t, line.lp, self._legs.where) if self._logprobs else ()
                deltas.append(self._transcript.feed(line.t, logprobs=logprobs))
            elif line.done:
                deltas.append(self._transcript.close(str(line.finish_reason), line.stop_reason))
            if self._transcript.finish_reason is not None:
                break
        return deltas
