"""Two hundred callers for one slot (R4): served in order or told when to come back; general traffic does not notice."""

import asyncio
import statistics
import time

import pytest

from router import TrafficClass
from router.fake import FakeDecode, FakePrefill
from tests.router.stack import CHAT, Open, Stack, until

pytestmark = pytest.mark.contract("R4")
CALLERS, LIMIT = 200, 120


async def native(stack: Stack, count: int) -> list[float]:
    """Seconds of general requests, one after the other."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        async with stack.session.post(stack.url + CHAT, json={"model": "tiny"}) as reply:
            assert reply.status == 200
            await reply.read()
        took.append(time.perf_counter() - start)
    return took


async def test_all_are_served_in_order_or_refused_with_the_time_to_come_back(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41, 42], pace_s=0.002)
    stack = await open_stack(nodes=[node], queue_limit=LIMIT)
    served: list[int] = []
    refused: list[int] = []

    async def ask(number: int) -> None:
        async with stack.ask(max_tokens=3) as reply:
            await reply.read()
            if reply.status == 200:
                served.append(number)
            else:
                assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1
                refused.append(number)

    tasks = []
    for number in range(CALLERS):
        tasks.append(asyncio.create_task(ask(number)))
        if number < LIMIT:  # each has rendered before the next comes, so that the order of arrival is known
            await until(lambda number=number: len(stack.prefill.calls) > number)  # type: ignore[misc]
    await asyncio.gather(*tasks)
    assert len(served) + len(refused) == CALLERS and len(served) > LIMIT
    assert served == sorted(served), "first come, first served"
    assert node.most_active == 1 and node.kept.crowded == []


async def test_general_traffic_does_not_notice_a_crowd(open_stack: Open, model_dir) -> None:
    server = FakePrefill(model_dir)
    waiting = TrafficClass(name="speed", pool="speed", queue_limit=CALLERS, queue_wait_s=60)
    node = FakeDecode(tokens=[41] * 8, pace_s=0.01)
    classes = (waiting, TrafficClass(name="native", pool="native"))
    stack = await open_stack(server, [node], classes=classes)
    await native(stack, 20)
    alone, crowded = [], []
    for _ in range(3):
        alone += await native(stack, 100)
        crowd = [asyncio.create_task(stack.whole(max_tokens=9)) for _ in range(CALLERS)]
        await until(lambda: node.active)
        await asyncio.sleep(0.5)  # all have arrived
        crowded += await native(stack, 100)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        await until(lambda: not node.active)
    p99 = [statistics.quantiles(each, n=100)[98] * 1e3 for each in (alone, crowded)]
    p50 = [statistics.median(each) * 1e3 for each in (alone, crowded)]
    print(
        f"\ngeneral traffic alone p50 {p50[0]:.2f} p99 {p99[0]:.2f} ms, beside {CALLERS} callers of one slot ", end=""
    )
    print(f"p50 {p50[1]:.2f} p99 {p99[1]:.2f} ms")
    assert len(alone) == len(crowded) == 300
