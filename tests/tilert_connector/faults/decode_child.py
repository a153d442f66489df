"""A decode node without an engine: it takes state, and says whether every byte of it is the right one."""

import asyncio
import sys
import threading
from typing import Any

import numpy as np

from tests.tilert_connector.faults.child import descriptors, serve, take_stdout
from tests.tilert_connector.faults.terms import CAPACITY, MARK, model, receiving
from tilert_connector import HandoffFailed, HandoffTimeout, Receiver
from tilert_connector.transport import allocate_slots, open_sink


class Node:
    """`slots` slots on these ports (0: free ones)."""

    def __init__(self, transport: str, slots: int, ctrl_port: int, data_port: int) -> None:
        self.model = model()
        config = receiving(ctrl_port)
        self.slots = allocate_slots(transport, slots, self.model.layout.slot_bytes(CAPACITY))
        sink = open_sink(transport, self.model.layout, self.slots, CAPACITY, config.host, data_port)
        views = [memoryview(slot.array) for slot in self.slots]
        self.receiver = Receiver(config, self.model.layout, MARK, views, CAPACITY, sink)

    async def take(self, handoff: str, seeds: list[int], tokens: int, wait: float, keep: float) -> dict[str, Any]:
        """Wait for state, look at it, hold it for `keep` seconds, look again."""
        try:
            held = await self.receiver.committed(handoff, wait)
        except HandoffFailed as error:
            return {"failed": error.reason}
        except HandoffTimeout:
            await self.receiver.cancel(handoff, "took too long")
            return {"failed": "the decode request gave up waiting"}
        exact = [seed for seed in seeds if self._exact(held.slot, seed, tokens)]
        await asyncio.sleep(keep)
        again = bool(exact) and self._exact(held.slot, exact[0], tokens) and held.tokens == tokens
        self.receiver.release(held)
        return {"exact": again, "tokens": held.tokens}

    async def cancel(self, handoff: str) -> bool:
        """As the router does."""
        return await self.receiver.cancel(handoff, "cancelled by the schedule")

    async def status(self) -> dict[str, Any]:
        """The receiver's, and what this process holds."""
        return {**self.receiver.status(), "descriptors": descriptors(), "threads": threading.active_count()}

    async def close(self) -> bool:
        """End well; the ports are free afterwards."""
        await self.receiver.close()
        return True

    def _exact(self, slot: int, seed: int, tokens: int) -> bool:
        expected = self.model.expected(tokens, CAPACITY, seed)
        touched = self.model.touched(tokens, CAPACITY)
        return bool(np.array_equal(self.slots[slot].array[touched], expected[touched]))


async def main() -> None:
    answers = take_stdout()
    transport, slots, ctrl_port, data_port = sys.argv[1], *map(int, sys.argv[2:5])
    node = Node(transport, slots, ctrl_port, data_port)
    await node.receiver.start()
    handlers = {"take": node.take, "cancel": node.cancel, "status": node.status, "close": node.close}
    await serve(answers, {"ctrl_port": node.receiver.ctrl_port, "data_port": node.receiver.data_port}, handlers)


if __name__ == "__main__":
    asyncio.run(main())
