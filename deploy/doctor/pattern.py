"""A test pattern, handed to the decode node by the prefill node's own code.

Invariant: nothing of it stays: the handoff is cancelled once it was committed.
"""

import asyncio
import time

import numpy as np

from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.course import Record
from tilert_connector.exporter import Exporter, PagedPlane
from tilert_connector.layout import Fingerprint, KvLayout
from tilert_connector.sender import Sender
from tilert_connector.tracker import Chunk, Finish, Opening, Step
from tilert_connector.transport import open_carriers

__all__ = ["SETTLE_S", "Pattern"]

ROWS = 16
"""Tokens of a block, for layouts without tiles; vLLM's own for MLA."""
SETTLE_S = 0.3
"""Time between the offer and the first byte, so that the rate is that of the bytes."""


class Pattern:
    """State of `tokens` tokens for a decode node of this layout, in blocks as vLLM has them."""

    def __init__(self, layout: KvLayout, mark: Fingerprint, tokens: int) -> None:
        self.tokens = tokens
        self._mark = mark
        self._layout = layout
        tile = max(plane.tile for plane in layout.planes)
        self._block = tile if tile > 1 else ROWS
        self._blocks = -(-tokens // self._block)
        stride = layout.token_bytes * self._block
        self._memory = np.resize(np.arange(251, dtype=np.uint8), stride * self._blocks)
        sources, offset = {}, 0
        for index, plane in enumerate(layout.planes):
            sources[index] = PagedPlane(self._memory, stride, offset)
            offset += plane.token_bytes * self._block
        self._exporter = Exporter(layout, self._block, sources)

    async def send(self, config: ConnectorConfig, claim: Claim) -> Record:
        """Hand it over. Gives how that ended, at the latest after `config.handoff_s` and a little."""
        carriers = open_carriers(self._layout, [self._memory])
        sender = Sender(config, 0, self._mark, self._exporter, carriers)
        try:
            opening = Opening(request="doctor", claim=claim, tokens=self.tokens)
            sender.begin(Step(openings=(opening,)))
            await asyncio.sleep(SETTLE_S)
            chunk = Chunk(request="doctor", blocks=tuple(range(self._blocks)), available=self.tokens)
            sender.begin(Step(chunks=(chunk,)))
            sender.advance(Step(chunks=(chunk,)))
            deadline = time.monotonic() + config.handoff_s + config.connect_s + 5
            while not (records := sender.take_records()):
                if time.monotonic() > deadline:
                    sender.advance(Step(finished=(Finish(request="doctor", completed=False, delayed=False),)))
                    deadline += config.handoff_s
                await asyncio.sleep(0.002)
            return records[0]
        finally:
            await asyncio.to_thread(sender.close)
