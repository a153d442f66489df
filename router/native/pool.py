"""Servers that can stand in for each other, and which of them gets a request.

Invariant: a server's load is the number of requests that entered ``use`` and have not left it. A prompt goes where its
begin went before, unless that server holds ``SLACK`` requests more than the least loaded one. A server that cannot be
reached is chosen only when no other is left.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from router.config import NativePair
from router.errors import NotConfigured
from router.health import Health
from router.lately import Lately
from router.native.server import Server
from speedtier.errors import ConfigError

__all__ = ["SLACK", "Pool"]

SLACK = 4


class Pool:
    """Servers, from ``urls`` and ``pairs``. ``setting`` names the config field that fills the pool."""

    def __init__(self, urls: Sequence[str], setting: str, pairs: Sequence[NativePair] = ()) -> None:
        self._setting = setting
        self._healths: dict[str, Health] = {}
        self._went: Lately[int] = Lately()
        self._servers: list[Server] = []
        for url in urls:
            self.add(url)
        for pair in pairs:
            self.add(pair.decode, pair.prefill)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._servers)

    def add(self, url: str, prefill_url: str | None = None) -> Server:
        """A new server, or a pair with its prefill server.

        Raises:
            ConfigError: it is there already.
        """
        made = Server(url.rstrip("/"), self._health(url))
        if prefill_url is not None:
            made.prefill_url, made.prefill_health = prefill_url.rstrip("/"), self._health(prefill_url)
        if any(each.name == made.name for each in self._servers):
            raise ConfigError(f"{self._setting}: {made.name} is there already; name each server once")
        self._servers.append(made)
        return made

    def _health(self, url: str) -> Health:
        return self._healths.setdefault(url.rstrip("/"), Health())

    def named(self, name: str) -> Server:
        """The server of a name or URL.

        Raises:
            KeyError: there is none.
        """
        for each in self._servers:
            if name in (each.name, each.url):
                return each
        raise KeyError(name)

    def drain(self, name: str, draining: bool = True) -> None:
        """Give a server no new requests, or, with False, give it requests again. Raises as ``named``."""
        self.named(name).draining = draining

    def remove(self, name: str) -> None:
        """Forget a server; the requests that it holds go on. Raises as ``named``."""
        self._servers.remove(self.named(name))

    def choose(self, prefix: Sequence[int] = (), without: Collection[Server] = ()) -> Server:
        """The server for the next request. ``prefix``: see ``prefixes``. ``without``: those that have been
        tried.

        Raises:
            NotConfigured: the pool is empty, or drained.
        """
        found = [each for each in self._servers if not each.draining and each not in without]
        if not found:
            text = "is configured" if not self._servers else "takes requests: all are draining"
            raise NotConfigured(f"no {self._setting} server {text}; set `{self._setting}` of the router")
        found = [each for each in found if each.usable] or found
        least = min(found, key=lambda each: each.load)
        if prefix:
            name = self._went.server(prefix)
            known = next((each for each in found if each.name == name), None)
            if known is not None and known.load <= least.load + SLACK:
                least = known
            self._went.went(reversed(prefix), least.name)
        return least

    @contextmanager
    def use(self, prefix: Sequence[int] = (), without: Collection[Server] = ()) -> Iterator[Server]:
        """Hold a server for one request; see ``choose``."""
        server = self.choose(prefix, without)
        server.load += 1
        for part in server.parts:
            part.taken()
        try:
            yield server
        finally:
            server.load -= 1
            for part in server.parts:
                part.left()
