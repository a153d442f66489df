"""Which server each key went to last.

Invariant: bounded in memory; the keys that were used longest ago are forgotten first.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["Lately"]

Key = TypeVar("Key", bound=Hashable)


class Lately(Generic[Key]):
    """For the ``most`` latest keys."""

    def __init__(self, most: int = 1 << 16) -> None:
        self._most = most
        self._servers: OrderedDict[Key, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._servers)

    def server(self, keys: Iterable[Key]) -> str | None:
        """Where the first of ``keys`` that is known went, the surest given first."""
        return next((self._servers[key] for key in keys if key in self._servers), None)

    def went(self, keys: Iterable[Key], server: str) -> None:
        """All of them went to ``server``."""
        for key in keys:
            self._servers[key] = server
            self._servers.move_to_end(key)
        while len(self._servers) > self._most:
            self._servers.popitem(last=False)

    def forget(self, server: str) -> None:
        """It lost what it held."""
        for key in [key for key, name in self._servers.items() if name == server]:
            del self._servers[key]
