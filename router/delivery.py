"""From the first token to the end of the reply.

Invariant (R3): the first token goes to the client before anything is awaited from the decode node. After the
first byte an error is an event in the stream, and no chunk has a finish reason that neither leg gave.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from router.attempt import Attempt
from router.call import Call
from router.errors import ApiError, PeerBroken
from router.outlet import Outlet
from router.prefill import FirstToken
from router.reply import Reply
from router.stream import Line
from router.transcript import Delta, Transcript

__all__ = ["Delivery"]

Emit = Callable[[Sequence[Delta]], Awaitable[None]]


class Delivery:
    """One reply on its way.

    ``order``: what the decode node is asked for, without the first token; ``headers``: those that go with it.
    """

    def __init__(
        self,
        call: Call,
        attempt: Attempt,
        transcript: Transcript,
        reply: Reply,
        order: dict[str, object],
        headers: dict[str, str],
    ) -> None:
        self._call = call
        self._attempt = attempt
        self._transcript = transcript
        self._reply = reply
        self._order = order
        self._headers = headers

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
            self._call.record.error = error.message
            await outlet.write(b"data: " + error.body() + b"\n\ndata: [DONE]\n\n")
        assert outlet.reply is not None, "a reply has at least one chunk"
        return outlet.reply

    async def whole(self, first: FirstToken) -> web.StreamResponse:
        """Wait for the end and send one body."""
        texts: list[str] = []
        ids: list[int] = []

        async def emit(deltas: Sequence[Delta]) -> None:
            for delta in deltas:
                texts.append(delta.text)
                ids.extend(delta.ids)

        last = await self._run(first, emit)
        body = self._reply.whole("".join(texts), ids, last)
        self._call.record.status = 200
        return web.Response(body=body, content_type="application/json", headers=self._call.headers())

    async def _run(self, first: FirstToken, emit: Emit) -> Delta:
        call, transcript = self._call, self._transcript
        delta = transcript.feed([first.token], stopped=first.stopped, stop_reason=first.stop_reason)
        if delta.finish_reason is None:
            order = {**self._order, "first_token_id": first.token, "stream": True}
            self._attempt.open(order, self._headers)
        call.record.token()
        await emit([delta])
        with call.record.phase("decode"):
            while delta.finish_reason is None:
                if deltas := self._deltas(await self._attempt.lines()):
                    delta = deltas[-1]
                    await emit(deltas)
        call.record.finish_reason = delta.finish_reason
        if not transcript.by_text:
            self._attempt.natural()
        return delta

    def _deltas(self, lines: Sequence[Line]) -> list[Delta]:
        deltas: list[Delta] = []
        for line in lines:
            if line.t:
                deltas.append(self._transcript.feed(line.t))
            elif line.done:
                if line.finish_reason not in ("stop", "length"):
                    raise PeerBroken(
                        f"decode node {self._attempt.node.name} ended the reply with finish_reason "
                        f"{line.finish_reason!r} after {self._transcript.count} tokens"
                    )
                deltas.append(self._transcript.close(line.finish_reason, line.stop_reason))
            if self._transcript.finish_reason is not None:
                break
        return deltas
