"""From the shape of vLLM's paged cache to a layout and where each of its planes lies in a block.

Invariant: every rank derives the same layout, of the whole model; a rank names as sources only the planes
that it alone brings.
"""

from collections.abc import Mapping

import msgspec

from tilert_connector.exporter import PagedPlane
from tilert_connector.layout.kv_layout import KvLayout, gqa_layout, mla_layout
from tilert_connector.layout.views import Bytes

__all__ = ["PagedLayer", "Sources", "gqa_sources", "head_owner", "mla_sources"]

Sources = dict[int, PagedPlane]


class PagedLayer(msgspec.Struct, frozen=True):
    """One layer's cache: uint8[n] from block 0 on, and the bytes from block to block."""

    memory: Bytes
    stride: int


def mla_sources(
    layers: Mapping[int, PagedLayer], item: int, rank: int, rope: int, tensor_rank: int
) -> tuple[KvLayout, Sources]:
    """Rows `[block][token][rank + rope]` of `item` bytes. Every tensor-parallel rank has them; rank 0 sends.

    Source: vllm/v1/attention/backends/mla/cpu_mla.py.
    """
    layout = mla_layout(sorted(layers), item, rank, rope)
    if tensor_rank:
        return layout, {}
    sources = {
        index: PagedPlane(layers[layer].memory, layers[layer].stride, 0) for index, layer in enumerate(sorted(layers))
    }
    return layout, sources


def gqa_sources(
    layers: Mapping[int, PagedLayer],
    item: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    owned: Mapping[int, int],
) -> tuple[KvLayout, Sources]:
    """Per block and local head: keys `[head_dim][block_size]`, then values `[block_size][head_dim]`.

    owned: local head -> head of the model, for the heads that this rank sends.
    Source: vllm/v1/attention/backends/cpu_attn.py, confirmed by `layout.probe` at start-up.
    """
    layout = gqa_layout(sorted(layers), item, kv_heads, head_dim, block_size)
    half = block_size * head_dim * item
    sources: Sources = {}
    for number, layer in enumerate(sorted(layers)):
        memory, stride = layers[layer].memory, layers[layer].stride
        for local, head in owned.items():
            index = 2 * (number * kv_heads + head)
            sources[index] = PagedPlane(memory, stride, 2 * local * half)
            sources[index + 1] = PagedPlane(memory, stride, (2 * local + 1) * half)
    return layout, sources


def head_owner(kv_heads: int, tensor_rank: int, tensor_size: int) -> dict[int, int]:
    """local head -> head of the model, for the heads that this rank sends.

    With fewer heads than ranks vLLM replicates each; the first rank that has a head sends it.
    """
    if kv_heads >= tensor_size:
        local = kv_heads // tensor_size
        return {index: tensor_rank * local + index for index in range(local)}
    copies = tensor_size // kv_heads
    return {0: tensor_rank // copies} if tensor_rank % copies == 0 else {}
