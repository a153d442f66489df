"""A decode node as the router sees it.

Invariant: what a node can do is asked when it is first needed and again after every failure to reach it;
until it has answered once it offers no slot.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from router.config import DecodeNodeConfig, Timeouts
from router.errors import ApiError, Busy, PeerBroken, PeerTimeout
from router.health import Health
from router.hold import Hold, open_hold
from router.stream import TokenStream, open_stream
from tilert_connector.ticket import Ticket, node_name, sign

__all__ = ["Capabilities", "Node"]


PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""How long a node that broke off is left alone: not for long, since it says itself when it can decode no more, and a
reply that it breaks goes on elsewhere."""
FIRST_PAUSE_S = 0.01
LAST_PAUSE_S = 0.25


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What ``GET /capabilities`` of a decode node says; fields the router does not need are not read.

    ``max_tokens``: prompt and reply together. ``sampling``: names of the sampling fields that it executes. ``lease``:
    it keeps slots before prefill (``/pd/lease``); nodes of other makes do not.
    """

    max_tokens: int
    slots: int
    sampling: frozenset[str]
    ctrl_port: int | None = None
    fingerprint: dict[str, object] = {}
    instance: str = ""
    lease: bool = False


class Node:
    """One decode node: its address, what it can do, and how many requests of this router it holds."""

    def __init__(
        self,
        config: DecodeNodeConfig,
        session: aiohttp.ClientSession,
        timeouts: Timeouts,
        busy_s: float = 0.0,
        keys: Sequence[bytes] = (),
    ) -> None:
        self.url = config.url.rstrip("/")
        split = urlsplit(self.url)
        self.name = split.netloc
        self.host = config.ctrl_host or split.hostname or ""
        self._port = config.ctrl_port
        self._session = session
        self._timeouts = timeouts
        self._busy_s = busy_s
        self._keys = keys
        self._asking: asyncio.Task[Capabilities] | None = None
        self._fresh = False
        self.capabilities: Capabilities | None = None
        self.fingerprint = ""
        self.failure: ApiError | None = None
        self.lost: Callable[[Node], None] = lambda node: None
        """Called when it fails."""
        self.health = Health(first_s=PAUSE_S, last_s=LONGEST_PAUSE_S)
        self.draining = False
        self.in_flight = 0

    @property
    def free(self) -> int:
        """Slots that this router has not given away and may give."""
        return 0 if self.capabilities is None or self.draining else self.capabilities.slots - self.in_flight

    @property
    def fresh(self) -> bool:
        """Whether the node has answered since it last failed."""
        return self._fresh

    @property
    def known(self) -> bool:
        """Whether the node has answered since it last failed, is not left alone for a while, and takes requests."""
        return self._fresh and not self.draining and not self.health.pause_s

    def failed(self, error: ApiError) -> None:
        """The node could not be reached, or broke off: it gets no request before it has answered again, and not at
        once."""
        if error.blame:
            self._fresh, self.failure = False, error
            self.health.failed(error.message)
            self.lost(self)

    async def ask(self) -> Capabilities:
        """What the node can do; callers at the same time share one question.

        Raises:
            PeerBroken, PeerTimeout: it does not say.
        """
        if self._fresh and self.capabilities is not None:
            return self.capabilities
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, task: "asyncio.Task[Capabilities]") -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self.capabilities, self._fresh, self.failure = task.result(), True, None
            told = msgspec.json.encode(self.capabilities.fingerprint, order="deterministic")
            self.fingerprint = f"speedtier-{hashlib.sha256(told).hexdigest()[:8]}"

    async def _ask(self) -> Capabilities:
        try:
            async with (
                asyncio.timeout(self._timeouts.connect),
                self._session.get(f"{self.url}/capabilities") as reply,
            ):
                raw = await reply.read()
                if reply.status != 200:
                    raise PeerBroken(f"decode node {self.name} answered /capabilities with {reply.status}")
                found = msgspec.json.decode(raw, type=Capabilities)
                if found.ctrl_port is None and self._port is None:
                    raise PeerBroken(f"decode node {self.name} names no ctrl_port; set decode.ctrl_port")
                return found
        except TimeoutError:
            raise PeerTimeout(
                f"decode node {self.name} did not say what it can do within {self._timeouts.connect:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise PeerBroken(f"decode node {self.name} cannot be reached: {error}") from error
        except msgspec.MsgspecError as error:
            raise PeerBroken(f"decode node {self.name} sent /capabilities that are no good: {error}") from error

    def transfer_params(self, handoff: str, tokens: int) -> dict[str, object]:
        """``kv_transfer_params`` that send a prefill server's state of ``tokens`` tokens here under the id
        ``handoff``; signed (H9) where there are keys."""
        known = self.capabilities
        port = self._port or (known.ctrl_port if known else None)
        params: dict[str, object] = {"tilert_host": self.host, "tilert_ctrl_port": port, "tilert_handoff": handoff}
        if self._keys and known is not None and port is not None:
            ticket = Ticket(
                node=node_name(self.host, port),
                instance=known.instance,
                handoff=handoff,
                tokens=tokens,
                expires=time.time() + self._timeouts.prefill,
            )
            params["tilert_ticket"] = sign(self._keys, ticket)
        return params

    async def hold(self, handoff: str, wait_s: float) -> Hold | None:
        """Have a slot kept for a handoff; None on a node that cannot. Raises as ``open_hold``."""
        if self.capabilities is None or not self.capabilities.lease:
            return None
        try:
            return await open_hold(self._session, self.url, self.name, handoff, wait_s, self._timeouts.connect)
        except (PeerBroken, PeerTimeout) as error:
            self.failed(error)
            raise

    async def decode(self, order: dict[str, object], headers: dict[str, str]) -> TokenStream:
        """Open ``POST /pd/decode``; see ``router.stream``.

        A node that keeps no slots and is busy is asked again for ``busy_s`` seconds: its slot may be another router's,
        or be on the way back from a request that has just ended.
        """
        deadline, pause = time.monotonic() + self._busy_s, FIRST_PAUSE_S
        while True:
            try:
                return await open_stream(self._session, self.url, self.name, order, headers, self._timeouts)
            except Busy:
                if time.monotonic() + pause > deadline:
                    raise
            except (PeerBroken, PeerTimeout) as error:
                self.failed(error)
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE_S)

    async def cancel(self, handoff: str) -> None:
        """End a request on the node and wait for it, bounded; failures are the node's own timers' to mend
        (H5).
        """
        try:
            async with (
                asyncio.timeout(self._timeouts.cancel),
                self._session.post(f"{self.url}/pd/cancel", json={"rid": handoff}) as reply,
            ):
                await reply.read()
        except TimeoutError:
            self.failed(
                PeerTimeout(f"decode node {self.name} did not end a request within {self._timeouts.cancel:g} s")
            )
        except (aiohttp.ClientError, OSError) as error:
            self.failed(PeerBroken(f"decode node {self.name} cannot be reached: {error}"))
