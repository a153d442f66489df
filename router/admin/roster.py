"""All servers behind the router under one name each, whatever their kind.

Invariant: a server that is drained or removed keeps the requests that it has; one that comes is used at once.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from router.config import DecodeNodeConfig
from router.config.nodes import Url
from router.errors import BadRequest, NotFound
from router.fleet import Fleet
from router.native.pool import Pool
from router.native.server import Server
from router.node import Node
from speedtier.errors import ConfigError

__all__ = ["KINDS", "Addition", "Entry", "Kind", "Roster"]

Kind = Literal["decode", "prefill", "native"]
KINDS: tuple[Kind, ...] = ("decode", "prefill", "native")
# A server's own words may quote a request; they are in the log alone.
_QUOTED = re.compile(r"(answered \S+ with \d{3}|that is no good|that are no good): .*", re.DOTALL)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One server. ``state``: ``up``, ``down`` (the last try did not reach it), ``unknown`` (not asked yet) or
    ``draining``. ``slots``: of a decode node that has been reached. ``in_flight``: requests of this router."""

    kind: Kind
    name: str
    url: str
    prefill_url: str | None = None
    state: Literal["up", "down", "unknown", "draining"]
    slots: int | None = None
    in_flight: int
    failures: int
    last_error: str


class Addition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server to take into service. ``ctrl_host``, ``ctrl_port``: of a decode node. ``prefill_url``: of the server
    that prefills for a native one, in a pair."""

    kind: Kind
    url: Url
    prefill_url: Url | None = None
    ctrl_host: str | None = None
    ctrl_port: int | None = None


class Roster:
    """``pools``: of the kinds ``prefill`` and ``native``."""

    def __init__(self, fleet: Fleet, pools: Mapping[str, Pool]) -> None:
        self._fleet = fleet
        self._pools = pools

    def entries(self) -> list[Entry]:
        """All servers, decode nodes first."""
        found = [_node(each) for each in self._fleet.nodes]
        for kind in KINDS[1:]:
            found += [_server(kind, each) for each in self._pools[kind].servers]
        return found

    def add(self, given: Addition) -> Entry:
        """Take a server into service. Raises: BadRequest when it is there, or a field does not fit its kind."""
        own = {"decode": {"ctrl_host", "ctrl_port"}, "native": {"prefill_url"}}.get(given.kind, set())
        for field in sorted({"ctrl_host", "ctrl_port", "prefill_url"} - own):
            if getattr(given, field) is not None:
                raise BadRequest(f"{field} says nothing of a {given.kind} server; leave it out", param=field)
        if given.kind == "decode":
            config = DecodeNodeConfig(url=given.url, ctrl_host=given.ctrl_host, ctrl_port=given.ctrl_port)
            return _node(self._fleet.add(config))
        try:
            return _server(given.kind, self._pools[given.kind].add(given.url, given.prefill_url))
        except ConfigError as error:
            raise BadRequest(str(error), param="url") from None

    def drain(self, name: str, kind: str | None, draining: bool) -> Entry:
        """Give a server no new requests, or give it requests again. Raises as ``find``."""
        found = self.find(name, kind)
        if found.kind == "decode":
            return _node(self._fleet.drain(found.name) if draining else self._fleet.resume(found.name))
        pool = self._pools[found.kind]
        pool.drain(found.name, draining)
        return _server(found.kind, pool.named(found.name))

    async def remove(self, name: str, kind: str | None, within_s: float) -> Entry:
        """Drain a server and drop it when its requests have ended, or after ``within_s`` seconds. See ``find``."""
        found = self.find(name, kind)
        if found.kind == "decode":
            await self._fleet.remove(found.name, within_s)
            return found
        pool = self._pools[found.kind]
        pool.drain(found.name)
        server, deadline = pool.named(found.name), time.monotonic() + within_s
        while server.load and server.draining and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if server.draining and server in pool.servers:
            pool.remove(found.name)
        return found

    def find(self, name: str, kind: str | None) -> Entry:
        """A server by its name or URL.

        Raises:
            NotFound: there is none.
            BadRequest: servers of two kinds have the name, and ``kind`` does not say which.
        """
        entries = self.entries()
        found = [each for each in entries if name in (each.name, each.url) and kind in (None, each.kind)]
        if not found:
            there = [f"{each.kind} {each.name}" for each in entries]
            raise NotFound(f"no {kind or 'server'} is called {name!r}; there are {', '.join(there) or 'none'}")
        if len(found) > 1:
            kinds = " or ".join(each.kind for each in found)
            raise BadRequest(f"{name!r} is the name of servers of two kinds; say kind {kinds}", param="kind")
        return found[0]


def _node(node: Node) -> Entry:
    known = node.capabilities is not None
    state: Literal["up", "down", "unknown", "draining"] = "up" if known else "unknown"
    if node.draining:
        state = "draining"
    elif not node.health.healthy:
        state = "down"
    return Entry(
        kind="decode",
        name=node.name,
        url=node.url,
        state=state,
        slots=node.capabilities.slots if node.capabilities else None,
        in_flight=node.in_flight,
        failures=node.health.failures,
        last_error=_told(node.health.last_error),
    )


def _server(kind: Kind, server: Server) -> Entry:
    return Entry(
        kind=kind,
        name=server.name,
        url=server.url,
        prefill_url=server.prefill_url,
        state="draining" if server.draining else "up" if server.healthy else "down",
        in_flight=server.load,
        failures=max(part.failures for part in server.parts),
        last_error=_told(server.last_error),
    )


def _told(error: str) -> str:
    return _QUOTED.sub(r"\1", error)[:200]
