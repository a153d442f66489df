"""Equal servers, the least loaded first.

Invariant: a server's load is the number of requests that entered ``use`` and have not left it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from router.errors import NotConfigured

__all__ = ["Pool"]


class Pool:
    """Base URLs of servers that can stand in for each other. ``setting`` names the config field that fills
    it.
    """

    def __init__(self, urls: Sequence[str], setting: str) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self._setting = setting
        self._load = dict.fromkeys(self.urls, 0)

    def first(self) -> str:
        """The least loaded server; among equals the first.

        Raises:
            NotConfigured: the pool is empty.
        """
        if not self.urls:
            raise NotConfigured(f"no {self._setting} server is configured; set `{self._setting}` of the router")
        return min(self.urls, key=self._load.__getitem__)

    @contextmanager
    def use(self) -> Iterator[str]:
        """Hold the least loaded server's URL for one request."""
        url = self.first()
        self._load[url] += 1
        try:
            yield url
        finally:
            self._load[url] -= 1
