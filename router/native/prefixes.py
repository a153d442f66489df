"""What the begin of a prompt is known by: a server that has seen it may hold it in its prefix cache.

Invariant: it costs a hash of the first MiB at most, at lengths that double. Nothing is parsed; the bytes of a field
stand for its tokens, so they make a guess and never more.
"""

import xxhash

from router.body import Body

__all__ = ["prefixes"]

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
