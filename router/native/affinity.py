"""Which server has seen the begin of a prompt: what its prefix cache can be hoped to hold.

Invariant: memory is bounded, and the lookup costs a hash of the first MiB at most: prefixes are remembered at lengths
that double. Nothing is parsed; the bytes of a field stand for its tokens, so an answer is a guess and never more.
"""

from collections import OrderedDict
from collections.abc import Sequence

import xxhash

from router.body import Body

__all__ = ["Affinity", "prefixes"]

SHORTEST = 256
LONGEST = 1 << 20
FIELDS = ("messages", "prompt", "input", "system")
SCOPE = ("model", "cache_salt")


def prefixes(body: Body | None) -> list[int]:
    """Hashes of the begins of a body's prompt, longest first; none for a short prompt, or for what is no object."""
    fields = (body and body.fields) or {}
    name = next((name for name in FIELDS if name in fields), None)
    if name is None:
        return []
    text = memoryview(fields[name])
    digest = xxhash.xxh64()
    for each in SCOPE:  # states are shared within one model and one salt alone
        digest.update(bytes(fields.get(each, b"")) + b"\0")
    found: list[int] = []
    start, end = 0, SHORTEST
    while end <= min(len(text), LONGEST):
        digest.update(text[start:end])
        found.append(digest.intdigest())
        start, end = end, 2 * end
    return found[::-1]


class Affinity:
    """The server that each prefix went to last, for the ``limit`` latest prefixes."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._went: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._went)

    def of(self, found: Sequence[int]) -> str | None:
        """The server of the longest prefix that is remembered."""
        return next((self._went[each] for each in found if each in self._went), None)

    def went(self, found: Sequence[int], server: str) -> None:
        """A request went to a server."""
        for each in reversed(found):
            self._went[each] = server
            self._went.move_to_end(each)
        while len(self._went) > self._limit:
            self._went.popitem(last=False)
