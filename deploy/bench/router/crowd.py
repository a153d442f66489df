"""General traffic beside a crowd that waits for one slot, and without it, in turn.

Invariant: the crowd has arrived, all of it, before the first request beside it is measured.
"""

import asyncio
import time
import urllib.request

from deploy.bench.router.bench import Bench
from deploy.bench.router.client import Client, post
from deploy.bench.router.first_token import MARKED
from speedtier.errors import SpeedtierError

__all__ = ["CALLERS", "beside_a_crowd"]

CALLERS = 200
ARRIVE_S = 30.0
WAITING = 'speedtier_router_waiting{traffic_class="speed"} '


async def beside_a_crowd(bench: Bench, requests: int) -> tuple[list[float], list[float]]:
    """Milliseconds of general requests alone, and beside `CALLERS` who wait while one holds the slot."""
    alone = await _general(bench.router, requests)
    clients = [await Client.open(bench.router) for _ in range(CALLERS + 1)]
    ask = post("/v1/chat/completions", {"model": "stub", "messages": [], "stream": True}, **MARKED)
    try:
        for client in clients:
            client.ask(ask)
        deadline = time.monotonic() + ARRIVE_S
        while await asyncio.to_thread(_waiting, bench.router) != CALLERS:
            if time.monotonic() > deadline:
                raise SpeedtierError(f"{CALLERS} callers of one slot did not all wait within {ARRIVE_S:g} s")
            await asyncio.sleep(0.05)
        beside = await _general(bench.router, requests)
        if await asyncio.to_thread(_waiting, bench.router) != CALLERS:
            raise SpeedtierError("the crowd went away while general traffic was measured")
    finally:
        for client in clients:
            client.close()
    while await asyncio.to_thread(_waiting, bench.router):
        await asyncio.sleep(0.05)
    return alone, beside


async def _general(port: int, requests: int) -> list[float]:
    body = {"model": "stub", "messages": [], "stream": True, "max_tokens": 1, "metadata": {"rate": "0"}}
    ask = post("/v1/chat/completions", body)
    client = await Client.open(port)
    took = []
    try:
        for _ in range(requests):
            started = client.ask(ask)
            took.append((await client.ended() - started) * 1e3)
    finally:
        client.close()
    return took


def _waiting(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return int(float(next(line.removeprefix(WAITING) for line in lines if line.startswith(WAITING))))
