"""A client that leaves, in every phase (R5): both legs end, and the slot serves the next request."""

import asyncio
import json
from typing import Any

import pytest

from router.fake import FakeDecode, FakePrefill
from tests.router.stack import Open, Stack, until

pytestmark = pytest.mark.contract("R5")
WITHIN_S = 10.0  # a bound, not the measure: R5 asks for 1 s, and a starved machine may stand still for longer


async def leave(stack: Stack, condition: Any, **fields: Any) -> None:
    """Ask, wait for ``condition``, hang up."""

    async def ask() -> None:
        async with stack.ask(**fields) as reply:
            async for _ in reply.content.iter_any():
                pass

    asking = asyncio.create_task(ask())
    await until(condition)
    assert not asking.done()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def serves_again(stack: Stack) -> None:
    stack.prefill.render_fault = stack.prefill.generate_fault = ""
    stack.decode.fault, stack.decode.pace_s = "", 0.0
    async with asyncio.timeout(WITHIN_S):
        whole = await stack.whole(max_tokens=4)
    assert whole["usage"]["completion_tokens"] == 4
    assert stack.decode.most_active == 1 or stack.decode.slots > 1


@pytest.mark.parametrize("stream", [True, False])
async def test_while_rendering(open_stack: Open, model_dir, stream: bool) -> None:
    stack = await open_stack(FakePrefill(model_dir, render_fault="hang"))
    await leave(stack, lambda: "/v1/chat/completions/render" in stack.prefill.calls, stream=stream)
    await until(lambda: stack.prefill.hung_up == ["/v1/chat/completions/render"], WITHIN_S)
    await serves_again(stack)
    assert stack.decode.cancelled == []


@pytest.mark.parametrize("stream", [True, False])
async def test_while_prefilling(open_stack: Open, model_dir, stream: bool) -> None:
    stack = await open_stack(FakePrefill(model_dir, generate_fault="hang"))
    await leave(stack, lambda: stack.prefill.generated, stream=stream)
    await until(lambda: stack.prefill.hung_up == ["/inference/v1/generate"], WITHIN_S)
    handoff = stack.prefill.generated[0]["kv_transfer_params"]["tilert_handoff"]
    await until(lambda: stack.decode.cancelled == [handoff], WITHIN_S)
    await serves_again(stack)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fault", "after"), [("mute", 0), ("hang", 0), ("hang", 2)])
async def test_while_waiting_for_state_and_while_decoding(
    open_stack: Open, stream: bool, fault: Any, after: int
) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41, 42, 43], fault=fault, after=after)])
    await leave(stack, lambda: stack.decode.active, stream=stream)
    rid = stack.decode.orders[0]["rid"]
    await until(lambda: stack.decode.hung_up == [rid] and stack.decode.cancelled == [rid], WITHIN_S)
    await serves_again(stack)


async def test_while_tokens_flow(open_stack: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "router.access")
    stack = await open_stack(nodes=[FakeDecode(tokens=[41] * 400, pace_s=0.001)])
    for _ in range(10):
        before = len(stack.decode.hung_up)
        async with stack.ask(stream=True, max_tokens=400) as reply:
            for _ in range(20):
                await reply.content.readany()
            reply.close()
        await until(lambda before=before: len(stack.decode.hung_up) > before, WITHIN_S)  # type: ignore[misc]
    lines = [json.loads(each.message) for each in caplog.records if each.name == "router.access"]
    assert [(line["status"], line["error"]) for line in lines] == [(499, "the client has gone")] * 10
    await serves_again(stack)


async def test_while_queued(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 400, pace_s=0.01)
    stack = await open_stack(nodes=[node], queue_wait_s=300)
    first = asyncio.create_task(stack.whole(max_tokens=100))
    await until(lambda: node.active)
    renders = stack.prefill.calls.count("/v1/chat/completions/render")
    await leave(stack, lambda: stack.prefill.calls.count("/v1/chat/completions/render") > renders)
    third = asyncio.create_task(stack.whole(max_tokens=2))
    await first
    await asyncio.wait_for(third, WITHIN_S)
    assert len(node.orders) == 2, "the one that left was never sent on"


@pytest.mark.parametrize("stream", [True, False])
async def test_native_requests(open_stack: Open, model_dir, stream: bool) -> None:
    stack = await open_stack(FakePrefill(model_dir, native_pace_s=30.0))
    await leave(stack, lambda: stack.prefill.native_seen, stream=stream, headers={"x-other": "1"})
    await until(lambda: stack.prefill.hung_up == ["/v1/chat/completions"], WITHIN_S)


async def test_a_client_that_does_not_read_gives_up_its_slot(open_stack: Open, model_dir) -> None:
    node = FakeDecode(tokens=[41] * 1_000_000, per_line=100, max_tokens=2_000_000)
    server = FakePrefill(model_dir, max_model_len=2_000_000)
    stack = await open_stack(server, nodes=[node], timeouts={"client": 0.3})
    async with stack.ask(stream=True, max_tokens=1_000_001, return_token_ids=True) as reply:
        await reply.content.readany()
        await until(lambda: node.hung_up or node.cancelled, 40)
        reply.close()
    await serves_again(stack)


async def test_a_cancel_that_is_not_answered_frees_the_slot_anyway(open_stack: Open) -> None:
    node = FakeDecode(fault="mute", deaf=True)
    stack = await open_stack(nodes=[node], timeouts={"cancel": 0.2})
    await leave(stack, lambda: node.active, stream=True)
    await serves_again(stack)
