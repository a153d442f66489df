"""Two hundred callers for one slot (R4): served in order or told when to come back."""

import asyncio

import pytest

from router.fake import FakeDecode
from tests.router.stack import Open, until

pytestmark = pytest.mark.contract("R4")
CALLERS, LIMIT = 200, 120


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
