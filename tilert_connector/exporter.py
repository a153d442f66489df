"""Worker side: the bytes of (planes, tokens) where they lie in vLLM's paged cache.

Invariant: `pieces` are, one after another, the bytes of `Plane.spans` in the same order. They are views of
the cache; only the part of a transposed tile, whose spans are as short as one value, is gathered.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from tilert_connector.errors import LayoutError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.plane import Plane
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.frame import Frame

__all__ = ["Exporter", "PagedPlane"]


class PagedPlane(msgspec.Struct, frozen=True):
    """Where one plane's part of each block lies.

    memory: uint8[n], contiguous, from block 0 on. stride: bytes from block to block. offset: bytes from the
    start of a block to the plane's part, which is laid out as the plane itself, for one block of tokens.
    """

    memory: Bytes
    stride: int
    offset: int


class Exporter:
    """`sources`: plane index -> where it lies; the planes that this worker brings. block_size: tokens."""

    def __init__(self, layout: KvLayout, block_size: int, sources: Mapping[int, PagedPlane]) -> None:
        for index in sources:
            plane = layout.planes[index]
            if plane.tile not in (1, block_size):
                raise LayoutError(f"{plane.name}: tile of {plane.tile} tokens in blocks of {block_size}")
        self.layout = layout
        self.block_size = block_size
        self.planes = _ranges(sorted(sources))
        self.layers = _layers(layout, sorted(sources))
        """The planes of each layer, in the order of layers: what can be sent when that layer is computed."""
        self.tile = max((layout.planes[index].tile for index in sources), default=1)
        self._sources = {index: (source, memoryview(source.memory.data)) for index, source in sources.items()}

    def planes_of(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Ranges of plane indices of layers [first, last), counted in the order of `layers`."""
        return _ranges(sorted(index for planes in self.layers[first:last] for index in planes))

    @property
    def memories(self) -> list[Bytes]:
        """The distinct memories, uint8[n], that pieces are views of."""
        return list({id(source.memory): source.memory for source, _ in self._sources.values()}.values())

    def pieces(self, frame: Frame, blocks: Sequence[int]) -> list[memoryview]:
        """The frame's bytes, in wire order. blocks: the request's block ids from token 0 on."""
        pieces: list[memoryview] = []
        for index in range(frame.plane_first, frame.plane_last):
            pieces.extend(self._plane(index, frame.first, frame.last, blocks))
        return pieces

    def _plane(self, index: int, first: int, last: int, blocks: Sequence[int]) -> Iterator[memoryview]:
        plane, size = self.layout.planes[index], self.block_size
        source, flat = self._sources[index]
        begin = end = 0
        for number in range(first // size, -(-last // size)):
            base = blocks[number] * source.stride + source.offset
            left, right = max(first - number * size, 0), min(last - number * size, size)
            if plane.tile > 1 and right - left < size:
                if end > begin:
                    yield flat[begin:end]
                begin = end = 0
                yield _gather(source.memory[base : base + size * plane.token_bytes], plane, left, right)
                continue
            start, stop = base + left * plane.token_bytes, base + right * plane.token_bytes
            if start == end:  # neighbours in memory travel as one piece
                end = stop
                continue
            if end > begin:
                yield flat[begin:end]
            begin, end = start, stop
        if end > begin:
            yield flat[begin:end]


def _gather(tile: Bytes, plane: Plane, left: int, right: int) -> memoryview:
    part = tile.reshape(plane.width, -1)[:, left * plane.item : right * plane.item]
    return memoryview(np.ascontiguousarray(part).reshape(-1).data)


def _layers(layout: KvLayout, indices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    by_layer: dict[int, list[int]] = {}
    for index in indices:
        by_layer.setdefault(layout.planes[index].layer, []).append(index)
    return tuple(tuple(by_layer[layer]) for layer in sorted(by_layer))


def _ranges(indices: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ascending indices as half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for index in indices:
        if ranges and ranges[-1][1] == index:
            ranges[-1] = ranges[-1][0], index + 1
        else:
            ranges.append((index, index + 1))
    return tuple(ranges)
