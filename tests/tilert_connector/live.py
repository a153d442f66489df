"""A receiver beside a live vLLM server, and the comparison with the reference."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.tilert_connector.paged_model import read
from tests.tilert_connector.reference_state import State
from tests.tilert_connector.vllm_server import VllmServer
from tilert_connector import Held, Receiver, ReceiverConfig
from tilert_connector.layout import KvLayout, fingerprint, gqa_layout, mla_layout

CAPACITY = 640
BLOCK = 128
CLOSE = 1e-4
"""Two implementations in float32; values are a few units in size."""


def layout_of(model: Path, block: int = BLOCK) -> KvLayout:
    config = json.loads((model / "config.json").read_text())
    layers = list(range(config["num_hidden_layers"]))
    if "kv_lora_rank" in config:
        return mla_layout(layers, 4, config["kv_lora_rank"], config["qk_rope_head_dim"])
    return gqa_layout(layers, 4, config["num_key_value_heads"], config["head_dim"], block)


class DecodeNode:
    """One slot, no engine. block: tokens, of GQA's tiles. By default every byte is sent anew."""

    def __init__(
        self,
        model: Path,
        block: int = BLOCK,
        capacity: int = CAPACITY,
        config: ReceiverConfig = ReceiverConfig(resident=False, slot_wait_s=120.0, expect_s=300.0),  # noqa: B008
    ) -> None:
        self.layout = layout_of(model, block)
        self.capacity = capacity
        self.slot = np.zeros(self.layout.slot_bytes(capacity), np.uint8)
        self.receiver = Receiver(
            config,
            self.layout,
            fingerprint(model, self.layout, weights_dtype="float32", kv_dtype="float32"),
            [memoryview(self.slot.data)],
            capacity,
        )

    def params(self, handoff: str) -> dict[str, Any]:
        port = self.receiver.ctrl_port
        return {"tilert_host": "127.0.0.1", "tilert_ctrl_port": port, "tilert_handoff": handoff}

    async def handed(self, server: VllmServer, handoff: str, prompt: list[int]) -> Held:
        """Prefill on the server and wait for the state; the slot was wiped before."""
        self.slot[:] = 0xFF
        await asyncio.to_thread(server.complete, prompt, self.params(handoff))
        return await self.receiver.committed(handoff, 20)

    def state(self, tokens: int) -> State:
        """What the slot holds, plane by plane: float32[tokens][width]."""
        offsets = self.layout.offsets(self.capacity)
        planes: State = {}
        for plane, offset in zip(self.layout.planes, offsets, strict=True):
            memory = self.slot[offset:]
            parts: list[NDArray[np.float32]] = []
            for first in range(0, tokens, max(plane.tile, 1) if plane.tile > 1 else tokens):
                last = min(tokens, first + plane.tile) if plane.tile > 1 else tokens
                part = np.frombuffer(read(memory, plane, first, last), np.float32)
                parts.append(part.reshape(plane.width, -1).T if plane.tile > 1 else part.reshape(-1, plane.width))
            planes[plane.name] = np.concatenate(parts)
        return planes


def furthest(ours: State, reference: State) -> float:
    """Largest difference over all planes, which must be the same ones."""
    assert ours.keys() == reference.keys()
    return max(float(np.abs(ours[name] - reference[name]).max()) for name in ours)


def random_prompt(tokens: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(5, 1000, tokens)]


async def idle(server: VllmServer, within: float = 15.0) -> None:
    """Wait until the server holds no cache block for any request."""
    for _ in range(int(within / 0.1)):
        if await asyncio.to_thread(server.metric, "vllm:kv_cache_usage_perc") == 0:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("vLLM still holds blocks")


@asynccontextmanager
async def decode_node(model: Path, block: int = BLOCK, capacity: int = CAPACITY) -> AsyncIterator[DecodeNode]:
    node = DecodeNode(model, block, capacity)
    await node.receiver.start()
    try:
        yield node
    finally:
        await node.receiver.close()
