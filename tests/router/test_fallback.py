"""R9: what the speed tier cannot serve goes to the native pool where the class says so, and says why."""

import asyncio
from typing import Any

import pytest

from router import DecodeNodeConfig, TrafficClass
from router.fake import FakeDecode, FakePrefill
from tests.router.stack import NO_FALLBACK, Open, Stack, until

pytestmark = pytest.mark.contract("R9")


async def served(stack: Stack, **fields: Any) -> tuple[int, str | None]:
    """Status, and why it went elsewhere."""
    async with stack.ask(**fields) as reply:
        await reply.read()
        return reply.status, reply.headers.get("x-speedtier-fallback")


async def test_by_capability(open_stack: Open) -> None:
    stack = await open_stack()
    assert await served(stack, n=2) == (200, "n")
    strict = await open_stack(classes=NO_FALLBACK)
    assert await served(strict, n=2) == (501, None)


async def test_by_length(open_stack: Open) -> None:
    node = FakeDecode(max_tokens=20)
    stack = await open_stack(nodes=[node])
    assert await served(stack, max_tokens=200) == (200, "length")
    assert await served(stack, max_tokens=3) == (200, None)
    strict = await open_stack(nodes=[node], classes=NO_FALLBACK)
    assert await served(strict, max_tokens=200) == (400, None)


async def test_by_queue_wait(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 300, pace_s=0.01)
    quick = TrafficClass(name="speed", pool="speed", fallback_wait_s=0.05)
    stack = await open_stack(nodes=[node], classes=(quick, NO_FALLBACK[1]))
    first = asyncio.create_task(served(stack, max_tokens=300))
    await until(lambda: node.active)
    assert await served(stack, max_tokens=3) == (200, "wait")
    assert await first == (200, None)


async def test_by_queue_wait_only_where_the_class_says_so(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 300, pace_s=0.01)
    stack = await open_stack(nodes=[node], queue_wait_s=0.05)
    first = asyncio.create_task(served(stack, max_tokens=300))
    await until(lambda: node.active)
    assert await served(stack, max_tokens=3) == (429, None)
    assert await first == (200, None)


async def test_by_health(open_stack: Open, model_dir: Any, unused_tcp_port: int) -> None:
    gone = (DecodeNodeConfig(url=f"http://127.0.0.1:{unused_tcp_port}"),)
    stack = await open_stack(nodes=[], decode=gone)
    assert await served(stack, max_tokens=3) == (200, "health")
    strict = await open_stack(nodes=[], decode=gone, classes=NO_FALLBACK)
    assert await served(strict, max_tokens=3) == (502, None)


@pytest.mark.parametrize("fault", ["die", "crash", "hang"])
async def test_by_health_of_the_prefill_servers(open_stack: Open, model_dir: Any, fault: Any) -> None:
    broken = FakePrefill(model_dir, render_fault=fault)
    stack = await open_stack(broken, timeouts={"render": 0.2})
    assert await served(stack, max_tokens=3) == (200, "health")
    assert stack.decode.kept.held == {}


async def test_what_is_wrong_with_a_request_is_not_served_elsewhere(open_stack: Open) -> None:
    stack = await open_stack()
    assert await served(stack, max_tokens=-1) == (400, None)
    assert stack.prefill.native_seen == []
