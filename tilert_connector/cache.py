"""Opens a worker's sender on vLLM's paged cache: which layout it is, where it lies, which planes are its own.

Invariant: of a cache that we could misread nothing is ever sent; every claim is refused with the reason.
"""

import ctypes
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from tilert_connector.config import ConnectorConfig
from tilert_connector.errors import LayoutError
from tilert_connector.exporter import Exporter
from tilert_connector.layout.fingerprint import PROTOCOL, Fingerprint, fingerprint
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.probe import Values, check_gqa_block
from tilert_connector.paged import PagedLayer, Sources, gqa_sources, head_owner, mla_sources
from tilert_connector.sender import Sender
from tilert_connector.transport.choose import open_carriers

__all__ = ["CacheFacts", "WriteBlock", "layer_index", "open_sender", "refusing_sender"]

WriteBlock = Callable[[Values, Values], Values]
LAYER = re.compile(r"\.layers\.(\d+)\.")
DTYPES = ("float32", "bfloat16", "float16")


class CacheFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM's configuration says about the cache.

    block_size: tokens. kv_heads: of the whole model (GQA). head_dim: of keys and values (GQA). rank, rope:
    latent and rotated values per token (MLA). tensor_rank, tensor_size: of this worker. write_block: see
    `check_gqa_block`; None for MLA. overrides: config.json keys that the operator overrides.
    """

    family: Literal["mla", "gqa"]
    block_size: int
    weights_dtype: str
    model_dir: Path
    revision: str = ""
    overrides: dict[str, Any] = {}
    kv_heads: int = 0
    head_dim: int = 0
    rank: int = 0
    rope: int = 0
    tensor_rank: int = 0
    tensor_size: int = 1
    write_block: WriteBlock | None = None


def open_sender(facts: CacheFacts, config: ConnectorConfig, caches: Mapping[str, Any]) -> Sender:
    """A sender that reads `caches`: vLLM's layer names -> torch tensors, which must outlive it.

    Shapes: MLA [blocks][1][block_size][rank + rope], GQA [blocks][local heads][block_size][2 * head_dim].
    Raises LayoutError.
    """
    layers = {layer_index(name): _memory(name, cache, facts) for name, cache in caches.items()}
    if not layers or len(layers) != len(caches):
        raise LayoutError(f"cache layers {sorted(caches)}: expected one cache for each decoder layer")
    kv_dtype, item = _dtype(caches)
    layout, sources = _sources(facts, layers, item)
    print_of_us = fingerprint(
        facts.model_dir,
        layout,
        weights_dtype=facts.weights_dtype,
        kv_dtype=kv_dtype,
        revision=facts.revision,
        weights=config.weights,
        overrides=facts.overrides,
    )
    exporter = Exporter(layout, facts.block_size, sources)
    return Sender(config, facts.tensor_rank, print_of_us, exporter, open_carriers(layout, exporter.memories))


def refusing_sender(config: ConnectorConfig, rank: int, reason: str) -> Sender:
    """A sender that reads no cache, and refuses every claim with `reason`.

    Its fingerprint is like no decode node's, so that none accepts anything of it either.
    """
    blank = dict.fromkeys(Fingerprint.__struct_fields__, "")
    nothing: Any = {**blank, "protocol": PROTOCOL, "family": "none", "block_size": 0}
    exporter = Exporter(KvLayout("mla", ()), 1, {})
    return Sender(config, rank, Fingerprint(**nothing), exporter, open_carriers(exporter.layout, []), refusal=reason)


def _sources(facts: CacheFacts, layers: Mapping[int, PagedLayer], item: int) -> tuple[KvLayout, Sources]:
    if facts.family == "mla":
        return mla_sources(layers, item, facts.rank, facts.rope, facts.tensor_rank)
    if facts.write_block is not None:
        about = f"dtype {facts.weights_dtype}, block size {facts.block_size}, head size {facts.head_dim}"
        check_gqa_block(facts.write_block, facts.block_size, facts.head_dim, about)
    owned = head_owner(facts.kv_heads, facts.tensor_rank, facts.tensor_size)
    return gqa_sources(layers, item, facts.kv_heads, facts.head_dim, facts.block_size, owned)


def layer_index(name: str) -> int:
    """The decoder layer of a name of vLLM's. Raises LayoutError."""
    found = LAYER.search(f".{name}.")
    if found is None:
        raise LayoutError(f"cache layer {name!r} has no layer index that we know")
    return int(found.group(1))


def _dtype(caches: Mapping[str, Any]) -> tuple[str, int]:
    names = {str(cache.dtype).removeprefix("torch.") for cache in caches.values()}
    if len(names) != 1 or not names <= set(DTYPES):
        raise LayoutError(f"cache dtypes {sorted(names)}: one of {', '.join(DTYPES)} is supported")
    return names.pop(), next(iter(caches.values())).element_size()


def _memory(name: str, cache: Any, facts: CacheFacts) -> PagedLayer:
    """The tensor's memory as bytes; blocks must be contiguous inside, whatever lies between them."""
    if cache.device.type != "cpu":
        raise LayoutError(f"cache of {name} is on {cache.device}, only the CPU's caches can be sent yet")
    if facts.family == "mla":
        inner = (1, facts.block_size, facts.rank + facts.rope)
    else:
        local = max(1, facts.kv_heads // facts.tensor_size)
        inner = (local, facts.block_size, 2 * facts.head_dim)
    if tuple(cache.shape[1:]) != inner or not cache[0].is_contiguous():
        raise LayoutError(
            f"cache of {name} has shape {tuple(cache.shape)} and strides {tuple(cache.stride())}, expected "
            f"contiguous blocks of {inner}"
        )
    item = cache.element_size()
    stride = cache.stride(0) * item
    size = (cache.shape[0] - 1) * stride + int(np.prod(inner)) * item
    memory = np.frombuffer((ctypes.c_uint8 * size).from_address(cache.data_ptr()), np.uint8)
    return PagedLayer(memory, stride)
