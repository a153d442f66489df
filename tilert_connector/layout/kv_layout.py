"""KvLayout: every plane of a model's attention state, and the memory map of one slot.

Invariant: two processes with equal layouts agree on every byte of a slot and of the wire.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from tilert_connector.layout.plane import Plane

__all__ = ["Family", "KvLayout", "gqa_layout", "mla_layout"]

Family = Literal["mla", "gqa"]
ALIGN = 64
"""Planes start on cache lines, so that a kernel's loads do not straddle them."""


class KvLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All planes, in the order in which they travel and lie in a slot."""

    family: Family
    planes: tuple[Plane, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes on the wire per token, over all planes."""
        return sum(plane.token_bytes for plane in self.planes)

    def offsets(self, capacity: int) -> tuple[int, ...]:
        """Byte offset of each plane in a slot with room for `capacity` tokens."""
        starts, position = [], 0
        for plane in self.planes:
            starts.append(position)
            position += -(-plane.capacity_bytes(capacity) // ALIGN) * ALIGN
        return tuple(starts)

    def slot_bytes(self, capacity: int) -> int:
        """Bytes of one slot with room for `capacity` tokens; a multiple of 64."""
        return sum(-(-p.capacity_bytes(capacity) // ALIGN) * ALIGN for p in self.planes)


def mla_layout(layers: Sequence[int], item: int, rank: int = 512, rope: int = 64) -> KvLayout:
    """MLA: one row of `rank` latent and `rope` rotated values per token and layer.

    Source: vllm/v1/attention/backends/mla/cpu_mla.py (`kv_c` then `k_pe`).
    """
    return KvLayout("mla", tuple(Plane(f"layers.{i}.kv", rank + rope, item) for i in layers))


def gqa_layout(layers: Sequence[int], item: int, kv_heads: int, head_dim: int, tile: int) -> KvLayout:
    """GQA: per layer and key-value head a plane of transposed key tiles and one of value rows.

    Source: vllm/v1/attention/backends/cpu_attn.py; the tile is the block size of the cache.
    """
    planes = []
    for layer in layers:
        for head in range(kv_heads):
            planes.append(Plane(f"layers.{layer}.k.{head}", head_dim, item, tile))
            planes.append(Plane(f"layers.{layer}.v.{head}", head_dim, item))
    return KvLayout("gqa", tuple(planes))
