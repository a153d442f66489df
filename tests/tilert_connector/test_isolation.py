"""H11: decode nodes are independent. One that is dead delays handoffs to another by less than 50 ms."""

import itertools
import socket
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.tilert_connector.faults.child import Child
from tests.tilert_connector.faults.terms import MARK
from tests.tilert_connector.pair import Pair, pair, until
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.tracker import Chunk, Finish, Opening, Step

LIMIT_S = 0.05
LONG = ConnectorConfig(frame_bytes=4096, handoff_s=120, hold_s=120, connect_s=120, offer_s=120)
HANDOFFS = 15


@asynccontextmanager
async def dead(kind: str) -> AsyncIterator[tuple[int, Child | None]]:
    """The control port of a decode node that will never answer again; the process to stop, if there is one."""
    if kind == "mute":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener.getsockname()[1], None
        return
    child = await Child("decode_child", "tcp", 4, 0, 0).start()
    if kind == "killed":
        await child.kill()
        yield child.first["ctrl_port"], None
        return
    try:
        yield child.first["ctrl_port"], child
    finally:
        child.go_on()
        await child.kill()


def claim(port: int, number: int) -> Claim:
    return Claim(host="127.0.0.1", ctrl_port=port, handoff=f"dead-{number}")


async def handed(both: Pair, names: "itertools.count[int]", step: Step) -> float:
    """Seconds from a prompt's first step to its commit, the engine's calls included; `step` is in the same one."""
    request = f"r{next(names)}"
    begun = time.monotonic()
    chunk = Chunk(request=request, blocks=tuple(range(7)), available=100)
    both.step(
        Step(
            openings=(*step.openings, both.opening(request, 100)), chunks=(*step.chunks, chunk), finished=step.finished
        )
    )
    both.step(Step(finished=(Finish(request=request, completed=True, delayed=True),)))
    held = await both.receiver.committed(f"h-{request}", 30)
    took = time.monotonic() - begun
    both.receiver.release(held)
    return took


@pytest.mark.contract("H11")
@pytest.mark.parametrize("kind", ["mute", "killed", "stopped"])
async def test_a_dead_node_delays_the_other_by_less_than_50_ms(kind: str) -> None:
    names = itertools.count()
    async with pair("gqa", sender=LONG, mark=MARK) as both, dead(kind) as (port, child):
        sender = both.senders[0]
        alone = [await handed(both, names, Step()) for _ in range(HANDOFFS)]
        openings = tuple(Opening(request=f"d{n}", claim=claim(port, n), tokens=200) for n in range(8))
        chunks = tuple(Chunk(request=f"d{n}", blocks=(10, 11), available=32) for n in range(8))
        both.step(Step(openings=openings, chunks=chunks))
        if child is not None:
            await until(lambda: sum(one.phase.name == "WRITING" for one in sender._outgoing.values()) == 4)
            child.stop()
        beside = []
        for number in range(HANDOFFS):  # more work for the dead node comes with every one
            opening = Opening(request=f"e{number}", claim=claim(port, 100 + number), tokens=200)
            more = Chunk(request=f"d{number % 8}", blocks=(12,), available=48 + number)
            beside.append(await handed(both, names, Step(openings=(opening,), chunks=(more,))))
        delay = statistics.median(beside) - statistics.median(alone)
        print(f"\n{kind}: {1e3 * statistics.median(alone):.1f} ms alone, {1e3 * delay:+.1f} ms beside it")
        assert delay < LIMIT_S and max(beside) < 1.0
