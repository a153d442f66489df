"""Frames: which bytes travel together, and the fixed headers around them.

Invariant: a frame names planes and tokens, never an offset, so that a writer cannot aim outside the
slot that it was granted. Frames of one grant cover each plane from token 0 upwards without a gap.

On the wire (little-endian): attach (once per connection), then per frame: header, the planes' bytes in
the order of `Plane.spans`, their checksum (see `checksum`). The sink answers each frame with an ack.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout

__all__ = [
    "ACK",
    "ATTACH",
    "ATTACH_MAGIC",
    "CHECKSUM",
    "HEADER",
    "HEADER_MAGIC",
    "Frame",
    "cut_frames",
    "pack_header",
    "unpack_header",
]

ATTACH: Final = struct.Struct("<8sQ16s")
"""magic, generation, key."""
ATTACH_MAGIC: Final = b"tilertkv"
HEADER: Final = struct.Struct("<4sIIIIIQQ")
"""magic, index, first plane, plane after the last, first token, token after the last, generation, bytes."""
HEADER_MAGIC: Final = b"frme"
CHECKSUM: Final = struct.Struct("<Q")
ACK: Final = struct.Struct("<I")
"""Index of a frame that landed and whose checksum fits; a damaged one closes the connection instead."""


class Frame(NamedTuple):
    """Tokens [first, last) of planes [plane_first, plane_last); `size` bytes on the wire."""

    plane_first: int
    plane_last: int
    first: int
    last: int
    size: int


def cut_frames(
    layout: KvLayout, planes: tuple[tuple[int, int], ...], first: int, last: int, limit: int
) -> Iterator[Frame]:
    """Frames of at most about `limit` bytes that cover tokens [first, last) of these plane ranges.

    Planes are gathered until the limit; a plane that alone exceeds it is cut by tokens, at tiles.
    """
    count = last - first
    if count <= 0:
        return
    for start, stop in planes:
        index = start
        while index < stop:
            size = count * layout.planes[index].token_bytes
            if size > limit:
                yield from _cut_tokens(layout, index, first, last, limit)
                index += 1
                continue
            end = index + 1
            while end < stop and size + count * layout.planes[end].token_bytes <= limit:
                size += count * layout.planes[end].token_bytes
                end += 1
            yield Frame(index, end, first, last, size)
            index = end


def _cut_tokens(layout: KvLayout, index: int, first: int, last: int, limit: int) -> Iterator[Frame]:
    plane = layout.planes[index]
    step = max(1, limit // (plane.token_bytes * plane.tile)) * plane.tile
    token = first
    while token < last:
        stop = min(last, (token + step) // plane.tile * plane.tile)
        stop = stop if stop > token else last
        yield Frame(index, index + 1, token, stop, (stop - token) * plane.token_bytes)
        token = stop


def pack_header(index: int, generation: int, frame: Frame) -> bytes:
    """HEADER bytes of frame number `index` of a connection."""
    return HEADER.pack(
        HEADER_MAGIC,
        index,
        frame.plane_first,
        frame.plane_last,
        frame.first,
        frame.last,
        generation,
        frame.size,
    )


def unpack_header(data: bytes | bytearray | memoryview) -> tuple[int, int, Frame]:
    """(index, generation, frame). Raises WireError if these are not header bytes."""
    magic, index, plane_first, plane_last, first, last, generation, size = HEADER.unpack(data)
    if magic != HEADER_MAGIC:
        raise WireError(f"frame header starts with {magic!r}, not {HEADER_MAGIC!r}")
    return index, generation, Frame(plane_first, plane_last, first, last, size)
