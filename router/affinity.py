"""Which decode node most likely holds the state that a prompt begins with.

Invariant: a guess, bounded in memory; a wrong one costs time and nothing else. Who shares no cache salt shares no key.
"""

import hashlib
from array import array
from collections.abc import Mapping, Sequence

from router.lately import Lately

__all__ = ["Affinity"]

FINE = 64
"""Tokens between two keys of a prompt's first ``COARSE``, the block in which decode nodes compare prompts."""
COARSE = 1024
"""Tokens between two keys from there on."""


class Affinity:
    """Remembers the last node of each conversation.

    Args:
        headers: those that name a conversation; the first that a request has counts.
    """

    def __init__(self, headers: Sequence[str]) -> None:
        self._headers = tuple(headers)
        self._nodes: Lately[bytes] = Lately()

    def keys(
        self, headers: Mapping[str, str], cache_key: object, salt: str | None, prompt: Sequence[int]
    ) -> list[bytes]:
        """What a request is known by, the surest first: its session header, its ``prompt_cache_key``, its prompt's
        leading tokens, longest first."""
        base = (salt or "").encode("utf-8", "surrogatepass")
        named = [headers[name] for name in self._headers if name in headers][:1]
        named += [cache_key] if isinstance(cache_key, str) and cache_key else []
        return [_digest(base, b"name", each.encode("utf-8", "surrogatepass")) for each in named] + _chain(base, prompt)[
            ::-1
        ]

    def node(self, keys: Sequence[bytes]) -> str | None:
        """The node that served the surest key last."""
        return self._nodes.server(keys)

    def remember(self, keys: Sequence[bytes], node: str) -> None:
        """``node`` holds the state of all of these now."""
        self._nodes.went(keys, node)

    def forget(self, node: str) -> None:
        """``node`` lost its state."""
        self._nodes.forget(node)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _chain(base: bytes, prompt: Sequence[int]) -> list[bytes]:
    digests, previous, start = [], _digest(base, b"prompt"), 0
    while start + (step := FINE if start < COARSE else COARSE) <= len(prompt):
        try:
            tokens = array("q", prompt[start : start + step]).tobytes()
        except OverflowError:  # no token's id, which the prefill server will say
            break
        previous = _digest(previous, tokens)
        digests.append(previous)
        start += step
    return digests
