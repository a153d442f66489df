"""DecodeNode: one model's plan, weights and slots; the receiver that fills the slots, the engine that reads them.

Invariant: receiver and engine are given the same memory and the same layout, so a committed slot needs no copy.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import MlaFacts, ModelFacts, load_weights, read_facts
from persistent_engine.plan import BufferKind, BufferRow, Dtype, Plan, encode
from persistent_engine.runtime import Binding, DecodeEngine, allocate
from persistent_engine.runtime.cpu import CpuEngine
from persistent_engine.server.config import DecodeConfig
from persistent_engine.server.receiving import Receiving
from tilert_connector import Receiver
from tilert_connector.layout import KvLayout, gqa_layout, mla_layout
from tilert_connector.layout.fingerprint import Fingerprint, fingerprint
from tilert_connector.transport import Slot, TestedSink, allocate_slots, open_sink

__all__ = ["BoundModel", "DecodeNode", "bind_model", "layout_of", "open_node"]

BYTES_WORTH_A_WORKER = 8 << 20
"""Weights that make another worker worth its waiting: below, one core reads them from its caches."""
BYTES_WORTH_ALL_CORES = 256 << 20
"""Weights that make the event loop's core worth taking too: a step is then so long that HTTP hardly competes. Below,
sharing it doubles the time of a token (measured with 24 MB of weights on two cores)."""


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


def _plan(config: DecodeConfig, facts: ModelFacts, dtype: Dtype, capacity: int) -> Plan:
    def compiled(workers: int) -> Plan:
        return compile_plan(
            facts,
            this_cpu(workers),
            capacity=capacity,
            tile_tokens=config.block_size if not isinstance(facts.attention, MlaFacts) else 1,
            state_dtype=dtype,
            policy=config.policy,
        )

    if config.workers:
        return compiled(config.workers)
    plan = compiled(1)
    rows = plan.buffers[plan.buffers[:, BufferRow.KIND] == BufferKind.WEIGHT].astype(np.int64)
    size = int((rows[:, BufferRow.ROWS] * rows[:, BufferRow.COLS]).sum()) * dtype.item
    cores = this_cpu().workers if size >= BYTES_WORTH_ALL_CORES else max(1, this_cpu().workers - 1)
    workers = min(cores, 1 + size // BYTES_WORTH_A_WORKER)
    return plan if workers == 1 else compiled(workers)


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
    """Read the model, compile its plan, load its weights. progress: as `load_weights`. Raises: SpeedtierError."""
    directory = Path(config.model)
    facts = read_facts(directory)
    if config.dtype != "auto":
        facts = msgspec.structs.replace(facts, dtype=config.dtype)
    dtype = Dtype.BF16 if facts.dtype == "bfloat16" else Dtype.F32
    plan = _plan(config, facts, dtype, min(config.max_tokens, facts.max_position))
    if config.plan:
        Path(config.plan).write_bytes(encode(plan))
    layout = layout_of(facts, dtype, config.block_size)
    room = plan.manifest.capacity
    memory = allocate_slots(config.receiver.transport, config.slots, layout.slot_bytes(room))
    planes = {plane.name: start for plane, start in zip(layout.planes, layout.offsets(room), strict=True)}
    binding = allocate(plan, load_weights(plan, directory, progress), planes)
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
