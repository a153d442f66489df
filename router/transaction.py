"""Where the tokens of one reply come from: the prefill leg, the decode leg, and what takes their place when one fails.

Invariant (R6): before the first token a request is tried once more at most; afterwards a lost leg is replaced by
prefilling the prompt and all tokens so far elsewhere, so that none comes twice and none is missing. Whatever a leg held
is given up before the next one begins.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import aiohttp
import msgspec
from multidict import CIMultiDict

from router.attempt import Attempt
from router.config import Timeouts
from router.continuation import Continuation, continue_natively
from router.errors import ApiError, Busy, PeerBroken, PeerTimeout
from router.fleet import Ask, Fleet
from router.headers import traced
from router.native.pool import Pool
from router.native.server import Server
from router.prefill import Prefill
from router.record import Record
from router.rendered import FirstToken, Rendered
from router.stream import Line

__all__ = ["LOST", "Sources", "Transaction"]

_LOG = logging.getLogger("router")
LOST = (PeerBroken, PeerTimeout, Busy)
"""Errors of a leg that another leg may make good."""
MOST_REPAIRS = 3
NATIVE_AFTER_S = 2.0
"""The longest wait for another decode slot in the middle of a reply, where the native pool can go on at once."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The servers behind the speed tier, and those of the native pool."""

    fleet: Fleet
    prefill: Prefill
    prefills: Pool
    native: Pool
    session: aiohttp.ClientSession
    timeouts: Timeouts


class Transaction:
    """The legs of one reply.

    ``sampling``: the decode node's. ``may_go_native``: its class falls back to the native pool. ``headers``: those of
    the prefill leg.
    """

    def __init__(
        self,
        sources: Sources,
        rendered: Rendered,
        ask: Ask,
        sampling: Mapping[str, object],
        headers: CIMultiDict[str],
        record: Record,
        *,
        may_go_native: bool,
    ) -> None:
        self._sources = sources
        self._rendered = rendered
        self._ask = ask
        self._sampling = sampling
        self._headers = headers
        self._record = record
        self._may_go_native = may_go_native and "logprobs" not in sampling
        self._attempt: Attempt | None = None
        self._leg: Attempt | Continuation | None = None
        self._ids: list[int] = []
        self._tried: list[Server] = []
        self._repairs = self._silences = 0
        self._cut: PeerBroken | None = None
        self._lost: list[str] = []
        self._using = ExitStack()  # the native server that goes on holds one request more

    @property
    def where(self) -> str:
        """The server that the last tokens came from."""
        return self._record.node

    @property
    def answered(self) -> float | None:
        """See ``Attempt.answered``."""
        return self._attempt.answered if self._attempt is not None else None

    @property
    def fingerprint(self) -> str:
        """Of the decode node."""
        return self._attempt.node.fingerprint if self._attempt is not None else ""

    async def first(self) -> FirstToken:
        """A slot, and the first token.

        Raises:
            Busy: no slot became free.
            PassedThrough: the prefill server refuses the request, in its own words.
            PeerBroken, PeerTimeout: it failed twice.
        """
        try:
            first = await self._prefilled(self._rendered, self._ask)
        except (PeerBroken, PeerTimeout) as error:
            await self._given_up()
            _LOG.warning("request %s is tried again: %s", self._rendered.request_id, error.message)
            self._record.retries += 1
            try:
                first = await self._prefilled(self._rendered, self._avoiding(self._ask))
            except (PeerBroken, PeerTimeout) as last:
                last.detour = "health"
                raise
        self._ids = [first.token]
        return first

    def follow(self) -> None:
        """Have the tokens after the first one decoded."""
        self._open(self._ids[-1], self._ask.new - 1)

    async def lines(self) -> list[Line]:
        """What comes next, at least one line. Raises: Busy, PeerBroken, PeerTimeout when nothing could go on."""
        assert self._leg is not None, "follow comes first"
        try:
            if self._cut is not None:
                raise self._cut
            found = self._whole(await self._leg.lines())
        except LOST as error:
            self._cut = None
            found = await self._repaired(error)
        for line in found:
            self._ids += line.t
        return found

    def natural(self) -> None:
        """The reply is complete, by a reason that its sampler sees as well."""
        if self._leg is not None:
            self._leg.natural()

    def end(self) -> "asyncio.Task[None] | None":
        """Give up whatever is held; see ``Attempt.end``."""
        legs, self._leg, attempt, self._attempt = self._leg, None, self._attempt, None
        if isinstance(legs, Continuation):
            legs.end()
        self._using.close()
        return attempt.end() if attempt is not None else None

    # Inside

    def _whole(self, lines: list[Line]) -> list[Line]:
        """The lines before an end that is no reply's; the end itself is the error of the next read."""
        last = lines[-1]
        if not last.done or last.finish_reason in ("stop", "length"):
            return lines
        self._cut = PeerBroken(
            f"decode node {self.where} ended the reply with finish_reason {last.finish_reason!r}", blame=False
        )
        if len(lines) == 1:
            raise self._cut
        return lines[:-1]

    def _open(self, token: int, new: int) -> None:
        """Order ``new`` tokens at most after ``token`` from the decode node that has the state."""
        assert self._attempt is not None, "the prefill leg comes first"
        order = {
            "max_tokens": new,
            "sampling": self._sampling,
            "timeout_s": self._sources.timeouts.handoff,
            "first_token_id": token,
            "stream": True,
        }
        self._leg = self._attempt
        self._attempt.open(order, traced(self._headers))

    async def _given_up(self) -> None:
        if (ending := self.end()) is not None:
            await asyncio.shield(ending)

    def _avoiding(self, ask: Ask) -> Ask:
        return msgspec.structs.replace(ask, avoid=frozenset([*self._lost, self.where]))

    async def _prefilled(self, rendered: Rendered, ask: Ask) -> FirstToken:
        sources, record = self._sources, self._record
        with record.phase("queue"):
            self._attempt = attempt = await sources.fleet.attempt(ask)
        record.node = attempt.node.name
        with record.phase("prefill"), sources.prefills.use(without=self._tried_unless_all()) as server:
            try:
                first = await sources.prefill.first_token(
                    server.url, rendered, attempt.offer(len(rendered.token_ids)), self._headers
                )
            except (PeerBroken, PeerTimeout) as error:
                self._tried.append(server)
                if error.blame:
                    server.health.failed(error.message)
                raise
            server.health.worked()
            return first

    def _tried_unless_all(self) -> Sequence[Server]:
        left = [each for each in self._sources.prefills.servers if each not in self._tried and not each.draining]
        return self._tried if left else ()

    async def _repaired(self, error: ApiError) -> list[Line]:
        """The next tokens, from elsewhere. Raises ``error`` when there is no elsewhere."""
        await self._given_up()
        self._silences += isinstance(error, PeerTimeout)
        self._lost.append(self.where)
        while self._repairs < MOST_REPAIRS and self._silences < 2:  # the client has waited for two timeouts then
            self._repairs += 1
            self._record.repairs += 1
            _LOG.warning(
                "request %s goes on elsewhere after %d tokens: %s",
                self._rendered.request_id,
                len(self._ids),
                error.message,
            )
            try:
                return await self._elsewhere()
            except ApiError as failure:
                _LOG.warning("request %s could not go on there: %s", self._rendered.request_id, failure.message)
                await self._given_up()
        raise error

    async def _elsewhere(self) -> list[Line]:
        """Another decode node, else the native pool."""
        rendered = msgspec.structs.replace(self._rendered, token_ids=[*self._rendered.token_ids, *self._ids])
        left = self._ask.new - len(self._ids)
        native = self._may_go_native and bool(self._sources.native.servers)
        ask = msgspec.structs.replace(self._avoiding(self._ask), prompt=len(rendered.token_ids), new=left)
        if native:
            ask = msgspec.structs.replace(ask, wait_s=NATIVE_AFTER_S, patient=False)
        try:
            nodes = await self._sources.fleet.awake(patient=not native)
            if native and all(node.name in ask.avoid for node in nodes):
                return await self._natively(rendered, left)
            if all(self._lost.count(node.name) > 1 for node in nodes):
                raise PeerBroken("every decode node has broken this reply off twice")
            first = await self._prefilled(rendered, ask)
        except ApiError:
            if not native:
                raise
            await self._given_up()
            return await self._natively(rendered, left)
        lines = [Line(t=[first.token], lp=[(each.logprob, None, list(each.top)) for each in first.logprobs] or None)]
        if first.stopped:
            stop = first.stop_reason if isinstance(first.stop_reason, int) else None
            lines.append(Line(done=True, finish_reason="stop", stop_reason=stop))
        elif left > 1:
            self._open(first.token, left - 1)
        return lines

    async def _natively(self, rendered: Rendered, left: int) -> list[Line]:
        sources = self._sources
        server = self._using.enter_context(sources.native.use())
        self._record.node = server.name
        try:
            self._leg = leg = await continue_natively(
                sources.session, server.url, rendered, left, self._headers, sources.timeouts
            )
            return await leg.lines()
        except (PeerBroken, PeerTimeout) as error:
            server.health.failed(error.message)
            raise
