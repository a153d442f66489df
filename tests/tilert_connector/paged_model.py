"""A numpy stand-in for vLLM's paged cache of a small model, in both families.

The state of (layer, plane, token) is a fixed pseudo-random pattern, so that any byte out of place shows.
"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilert_connector.exporter import Exporter
from tilert_connector.layout import Fingerprint, KvLayout, Plane
from tilert_connector.layout.views import Bytes, plane_views
from tilert_connector.paged import PagedLayer, gqa_sources, head_owner, mla_sources

LAYERS = (0, 1, 2)
KV_HEADS = 2


def fingerprint(**changes: object) -> Fingerprint:
    fields: dict[str, object] = {
        "protocol": 1,
        "family": "mla",
        "architecture": "Tiny",
        "revision": "",
        "weights": "w",
        "weights_dtype": "float32",
        "kv_dtype": "float32",
        "scale_format": "none",
        "block_size": 1,
        "layers": "0,1,2",
        "planes": "p",
        "rope": "{}",
        "settings": "s",
    }
    return Fingerprint(**{**fields, **changes})  # type: ignore[arg-type]


@functools.cache
def _value(width: int, plane: int, token: int, seed: int) -> Bytes:
    return np.random.default_rng((seed, plane, token)).integers(0, 256, width, np.uint8)


class PagedModel:
    """`blocks` blocks of `block_size` tokens. family: mla (rows of 12 values) or gqa (2 heads of 8)."""

    def __init__(self, family: str, block_size: int, blocks: int, item: int = 4, ranks: int = 1) -> None:
        self.block_size = block_size
        self.exporters: list[Exporter] = []
        self.caches: list[list[Bytes]] = []
        self.layout: KvLayout
        for rank in range(ranks):
            local = 1 if family == "mla" else KV_HEADS // ranks
            inner = 12 * item if family == "mla" else 2 * 8 * local * item
            size = inner * block_size
            # A gap behind each block: the stride is not the size.
            memories = [np.zeros(blocks * (size + 64), np.uint8) for _ in LAYERS]
            layers = dict(zip(LAYERS, (PagedLayer(m, size + 64) for m in memories), strict=True))
            if family == "mla":
                layout, sources = mla_sources(layers, item, 8, 4, rank)
            else:
                owned = head_owner(KV_HEADS, rank, ranks)
                layout, sources = gqa_sources(layers, item, KV_HEADS, 8, block_size, owned)
            self.layout = layout
            self.exporters.append(Exporter(layout, block_size, sources))
            self.caches.append(memories)
            self._sources = sources if rank == 0 else {**self._sources, **sources}

    @property
    def exporter(self) -> Exporter:
        return self.exporters[0]

    def value(self, plane: int, token: int, seed: int) -> Bytes:
        """The bytes of one token in one plane."""
        return _value(self.layout.planes[plane].token_bytes, plane, token, seed)

    def prefill(self, blocks: Sequence[int], first: int, last: int, seed: int = 0) -> None:
        """Write the state of tokens [first, last) of a prompt that has these blocks."""
        for index, source in self._sources.items():
            plane = self.layout.planes[index]
            for token in range(first, last):
                base = blocks[token // self.block_size] * source.stride + source.offset
                part = source.memory[base : base + self.block_size * plane.token_bytes]
                put(part, plane, token % self.block_size, self.value(index, token, seed))

    def scribble(self, blocks: Sequence[int]) -> None:
        """Someone else uses these blocks now."""
        for source in self._sources.values():
            for block in blocks:
                source.memory[block * source.stride : (block + 1) * source.stride] = 0xEE

    def touched(self, tokens: int, capacity: int) -> NDArray[np.bool_]:
        """Which bytes of a slot the state of that many tokens has."""
        slot = np.zeros(self.layout.slot_bytes(capacity), np.uint8)
        for offset, plane in zip(self.layout.offsets(capacity), self.layout.planes, strict=True):
            for start, length in plane.spans(0, tokens):
                slot[offset + start : offset + start + length] = 1
        return slot.astype(bool)

    def expected(self, tokens: int, capacity: int, seed: int = 0) -> Bytes:
        """A slot as it must be, zero where nothing lands."""
        slot = np.zeros(self.layout.slot_bytes(capacity), np.uint8)
        offsets = self.layout.offsets(capacity)
        for index, plane in enumerate(self.layout.planes):
            memory = slot[offsets[index] : offsets[index] + plane.capacity_bytes(capacity)]
            for token in range(tokens):
                put(memory, plane, token, self.value(index, token, seed))
        return slot


def put(memory: Bytes, plane: Plane, token: int, value: Bytes) -> None:
    """One token's bytes where `Plane.spans` says, and not through the code under test."""
    if plane.tile == 1:
        memory[token * plane.token_bytes : (token + 1) * plane.token_bytes] = value
        return
    position = 0
    for start, length in plane.spans(token, token + 1):
        memory[start : start + length] = value[position : position + length]
        position += length


def read(memory: Bytes, plane: Plane, first: int, last: int) -> bytes:
    return b"".join(view.tobytes() for view in plane_views(memory, plane, first, last))
