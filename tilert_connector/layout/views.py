"""The spans of a plane as array views: what both ends read from and land into.

Invariant: the views, read one after another, are the bytes of `Plane.spans` in the same order.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilert_connector.layout.plane import Plane

__all__ = ["Bytes", "plane_views"]

Bytes = NDArray[np.uint8]


def plane_views(memory: Bytes, plane: Plane, first: int, last: int) -> Iterator[Bytes]:
    """Views of tokens [first, last) in `memory`, uint8[n], which starts where the plane starts.

    One-dimensional views are contiguous; the part of a transposed tile comes as one two-dimensional,
    strided view `[width][tokens * item]`.
    """
    if last <= first:
        return
    if plane.tile == 1:
        yield memory[first * plane.token_bytes : last * plane.token_bytes]
        return
    tile_bytes = plane.tile * plane.token_bytes
    token = first
    while token < last:
        index, inside = divmod(token, plane.tile)
        stop = min(last, (index + 1) * plane.tile)
        if inside == 0 and stop - token == plane.tile:
            full = (last - token) // plane.tile
            yield memory[index * tile_bytes : (index + full) * tile_bytes]
            token += full * plane.tile
            continue
        tile = memory[index * tile_bytes : (index + 1) * tile_bytes].reshape(plane.width, -1)
        left = inside * plane.item
        yield tile[:, left : left + (stop - token) * plane.item]
        token = stop
