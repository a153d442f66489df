"""A prefill node of a real model whose cache holds random bytes: whatever of it is decoded shows at once.

Arguments: checkpoint directory, dtype, tokens per block.
"""

import asyncio
import sys
from typing import Any

import numpy as np

from tests.tilert_connector.faults.child import serve, take_stdout
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.exporter import Exporter
from tilert_connector.layout import fingerprint
from tilert_connector.layout.fingerprint import read_config
from tilert_connector.paged import PagedLayer, gqa_sources, mla_sources
from tilert_connector.sender import Sender
from tilert_connector.tracker import Chunk, Finish, Opening, Step
from tilert_connector.transport import open_carriers

BLOCKS = 160


class Node:
    """One request at a time, as slow as it is asked to be."""

    def __init__(self, model: str, dtype: str, block_size: int) -> None:
        config, item = read_config(model), {"float32": 4, "bfloat16": 2}[dtype]
        rng, layers = np.random.default_rng(0), range(config["num_hidden_layers"])
        mla = "kv_lora_rank" in config
        rank, rope = config.get("kv_lora_rank", 0), config.get("qk_rope_head_dim", 0)
        heads, width = config.get("num_key_value_heads", 0), config.get("head_dim", 0)
        stride = (rank + rope if mla else 2 * heads * width) * block_size * item
        # Random bits are huge numbers or none: no token that follows is what the model would say.
        paged = {n: PagedLayer(rng.integers(0, 256, BLOCKS * stride, np.uint8), stride) for n in layers}
        if mla:
            layout, sources = mla_sources(paged, item, rank, rope, 0)
        else:
            layout, sources = gqa_sources(paged, item, heads, width, block_size, {n: n for n in range(heads)})
        mark = fingerprint(model, layout, weights_dtype=dtype, kv_dtype=dtype)
        exporter = Exporter(layout, block_size, sources)
        limits = ConnectorConfig(frame_bytes=16384, hold_s=5.0, handoff_s=20.0)
        self.block_size = block_size
        self.sender = Sender(limits, 0, mark, exporter, open_carriers(layout, exporter.memories))

    async def prefill(self, handoff: str, ctrl_port: int, tokens: int, chunk: int, step_s: float) -> dict[str, Any]:
        """Hand off that many tokens of nothing; returns when the blocks would be free."""
        claim = Claim(host="127.0.0.1", ctrl_port=ctrl_port, handoff=handoff)
        opening, available = Opening(request=handoff, claim=claim, tokens=tokens), 0
        while available < tokens:
            first, available = -(-available // self.block_size), min(tokens, available + chunk)
            blocks = tuple(range(first, -(-available // self.block_size)))
            chunks = (Chunk(request=handoff, blocks=blocks, available=available),)
            step = Step(openings=(opening,) if first == 0 and available <= chunk else (), chunks=chunks)
            self.sender.begin(step)
            self.sender.advance(step)
            await asyncio.sleep(step_s)
        self.sender.advance(Step(finished=(Finish(request=handoff, completed=True, delayed=True),)))
        while not self.sender.take_finished():
            await asyncio.sleep(0.002)
        return {"released": True}


async def main() -> None:
    answers = take_stdout()
    await serve(answers, {}, {"prefill": Node(sys.argv[1], sys.argv[2], int(sys.argv[3])).prefill})


if __name__ == "__main__":
    asyncio.run(main())
