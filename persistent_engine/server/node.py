"""DecodeNode: one model's plan, weights and slots; the receiver that fills the slots, the engine that reads them.

Invariant: receiver and engine are given the same memory and the same layout, so a committed slot needs no copy.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from persistent_engine.models import MlaFacts, ModelFacts, load_weights, read_facts
from persistent_engine.plan import Dtype
from persistent_engine.runtime import Binding, DecodeEngine, allocate
from persistent_engine.runtime.cpu import CpuEngine
from persistent_engine.server.config import DecodeConfig
from persistent_engine.server.planning import open_plan
from persistent_engine.server.receiving import Receiving
from tilert_connector import Receiver
from tilert_connector.layout import KvLayout, gqa_layout, mla_layout
from tilert_connector.layout.fingerprint import Fingerprint, fingerprint
from tilert_connector.transport import Slot, TestedSink, allocate_slots, open_sink

__all__ = ["BoundModel", "DecodeNode", "bind_model", "layout_of", "open_node"]


@dataclasses.dataclass
class DecodeNode:
    """What the HTTP side drives. `start` before use, `close` after."""

    config: DecodeConfig
    facts: ModelFacts
    receiver: Receiving
    engine: DecodeEngine
    fingerprint: Fingerprint

    @property
    def capacity(self) -> int:
        """Most tokens of one request, prompt and reply."""
        return min(self.config.max_tokens, self.facts.max_position)

    @property
    def layout(self) -> KvLayout:
        """Where the state of a token lies in a slot."""
        dtype = Dtype.BF16 if self.facts.dtype == "bfloat16" else Dtype.F32
        return layout_of(self.facts, dtype, self.config.block_size)

    async def start(self) -> None:
        """Engine first: a node that takes state can decode it."""
        await self.engine.start()
        await self.receiver.start()

    async def close(self) -> None:
        """Let go of both; idempotent."""
        await self.receiver.close()
        await self.engine.close()


def layout_of(facts: ModelFacts, dtype: Dtype, block_size: int) -> KvLayout:
    """Where the state of a model's tokens lies."""
    if isinstance(facts.attention, MlaFacts):
        return mla_layout(range(facts.layers), dtype.item, facts.attention.rank, facts.attention.rope)
    attention = facts.attention
    return gqa_layout(range(facts.layers), dtype.item, attention.kv_heads, attention.head_dim, block_size)


@dataclasses.dataclass(frozen=True)
class BoundModel:
    """A model's plan and weights over the memory of its slots; `room` tokens fit in one."""

    facts: ModelFacts
    layout: KvLayout
    binding: Binding
    memory: list[Slot]
    room: int

    @property
    def slots(self) -> list[np.ndarray]:
        """What the engine reads: uint8 arrays."""
        return [slot.array for slot in self.memory]


def bind_model(config: DecodeConfig, progress: Callable[[int, int], None] = lambda done, total: None) -> BoundModel:
    """Read the model, open its plan, load its weights. progress: as `load_weights`. Raises: SpeedtierError."""
    directory = Path(config.model)
    facts = read_facts(directory)
    if config.dtype != "auto":
        facts = msgspec.structs.replace(facts, dtype=config.dtype)
    dtype = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    plan, certificate = open_plan(config, facts, dtype, min(config.max_tokens, facts.max_position))
    layout = layout_of(facts, dtype, config.block_size)
    room = plan.manifest.capacity
    memory = allocate_slots(config.receiver.transport, config.slots, layout.slot_bytes(room))
    planes = {plane.name: start for plane, start in zip(layout.planes, layout.offsets(room), strict=True)}
    binding = allocate(plan, load_weights(plan, directory, progress), planes, certificate)
    return BoundModel(facts, layout, binding, memory, room)


def open_node(config: DecodeConfig, progress: Callable[[int, int], None] = lambda done, total: None) -> DecodeNode:
    """A node over `bind_model`. Raises: SpeedtierError."""
    bound = bind_model(config, progress)
    dtype = bound.facts.dtype
    mark = fingerprint(config.model, bound.layout, weights_dtype=dtype, kv_dtype=dtype, revision=config.revision)
    slots, layout, room, receiving = bound.slots, bound.layout, bound.room, config.receiver
    sink = open_sink(receiving.transport, layout, bound.memory, room, receiving.host, receiving.data_port)
    tested = TestedSink(sink, layout, slots[0], room)
    receiver = Receiver(receiving, layout, mark, [slot.data for slot in slots], room, tested)
    return DecodeNode(config, bound.facts, receiver, CpuEngine(bound.binding, slots, config.hang_s), mark)
