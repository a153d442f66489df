"""R6: a reply whose decode node is lost goes on elsewhere, with the tokens of an undisturbed one."""

import asyncio
import json
import random
from typing import Any

import pytest

from router.fake import FakeDecode, FakePrefill
from router.fake.model import reply_of
from tests.router.stack import COMPLETIONS, NO_FALLBACK, Open, Stack, until

pytestmark = pytest.mark.contract("R6")
TOKENS = 40
FAULTS = ["die", "cut", "error", "cancelled", "garbage", "hang"]
QUICK = {"connect": 2.0, "prefill": 1.0, "stall": 1.0, "handoff": 1.0}


async def streamed(stack: Stack, **fields: Any) -> tuple[list[int], str | None]:
    """Token ids of a stream, and its finish reason; each chunk's usage tells the same count."""
    events = await stack.events(COMPLETIONS, return_token_ids=True, max_tokens=TOKENS, **fields)
    assert "error" not in events[-1], events[-1]
    ids = [token for event in events for token in event["choices"][0]["token_ids"]]
    return ids, events[-1]["choices"][0]["finish_reason"]


def expected(stack: Stack, prompt: str = "the fox") -> list[int]:
    return reply_of(stack.ids(prompt), TOKENS)


async def speaking(open_stack: Open, model_dir: Any, count: int, **settings: Any) -> Stack:
    server = FakePrefill(model_dir, speaks=True)
    nodes = [FakeDecode(source=server) for _ in range(count)]
    return await open_stack(server, nodes, timeouts=QUICK, **settings)


@pytest.mark.parametrize("after", [0, 1, 7, TOKENS - 2])
@pytest.mark.parametrize("fault", FAULTS)
async def test_another_decode_node_goes_on(open_stack: Open, model_dir: Any, fault: Any, after: int) -> None:
    stack = await speaking(open_stack, model_dir, 2, classes=NO_FALLBACK)
    for node in stack.nodes:
        node.after = after
    stack.decode.fault = fault
    assert await streamed(stack) == (expected(stack), "length")
    first, second = stack.nodes
    assert len(first.orders) == 1
    assert len(second.orders) == 1 or after == TOKENS - 2, "the last token of all may come from the prefill server"
    assert len(stack.prefill.handoffs) == 2, "a new handoff"
    await until(lambda: first.orders[0]["rid"] in first.cancelled or fault != "hang")
    await until(lambda: not first.kept.held and not second.kept.held)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_native_pool_goes_on_where_no_other_node_is(
    open_stack: Open, model_dir: Any, fault: Any, stream: bool
) -> None:
    stack = await speaking(open_stack, model_dir, 1)
    stack.decode.fault, stack.decode.after = fault, 5
    if stream:
        assert await streamed(stack) == (expected(stack), "length")
    else:
        whole = await stack.whole(COMPLETIONS, return_token_ids=True, max_tokens=TOKENS)
        assert whole["choices"][0]["token_ids"] == expected(stack)
        assert whole["usage"]["completion_tokens"] == TOKENS


async def test_fifty_streams_with_nodes_that_die_at_random(open_stack: Open, model_dir: Any) -> None:
    source = random.Random(5)
    stack = await speaking(open_stack, model_dir, 3)
    ended = 0
    while ended < 50:
        victim = stack.nodes[source.randrange(3)]
        for node in stack.nodes:
            node.fault = ""
        victim.fault, victim.after = source.choice(["die", "cut", "error"]), source.randrange(TOKENS)
        prompts = ["the fox", "quick brown", "dog", "rests"]
        replies = await asyncio.gather(*(streamed(stack, prompt=prompt) for prompt in prompts))
        for prompt, reply in zip(prompts, replies, strict=True):
            assert reply == (expected(stack, prompt), "length")
        ended += len(prompts)
    await until(lambda: not any(node.kept.held for node in stack.nodes))
    assert [node.kept.crowded for node in stack.nodes] == [[], [], []]


async def test_stop_strings_and_stop_ids_hold_across_a_repair(open_stack: Open, model_dir: Any) -> None:
    stack = await speaking(open_stack, model_dir, 2)
    ids = expected(stack)
    for end in range(3, 12):
        stack.decode.fault, stack.decode.after = "die", end - 2
        events = await stack.events(COMPLETIONS, return_token_ids=True, max_tokens=TOKENS, stop_token_ids=[ids[end]])
        got = [token for event in events for token in event["choices"][0]["token_ids"]]
        until_end = ids[: ids.index(ids[end]) + 1]
        assert got == until_end
        assert (events[-1]["choices"][0]["finish_reason"], events[-1]["choices"][0]["stop_reason"]) == (
            "stop",
            ids[end],
        )


async def test_nothing_left_is_an_error_that_names_the_first_loss(open_stack: Open, model_dir: Any) -> None:
    stack = await speaking(open_stack, model_dir, 1, classes=NO_FALLBACK)
    stack.decode.fault, stack.decode.after = "die", 3
    *events, last = await stack.events(COMPLETIONS, return_token_ids=True, max_tokens=TOKENS)
    assert last["error"]["code"] == 502 and "broke off" in last["error"]["message"]
    got = [token for event in events for token in event["choices"][0]["token_ids"]]
    assert got == expected(stack)[: len(got)]
    await until(lambda: not stack.decode.kept.held)


async def test_a_prefill_leg_that_fails_is_tried_once_more_elsewhere(open_stack: Open, model_dir: Any) -> None:
    stack = await speaking(open_stack, model_dir, 2)
    stack.prefill.generate_fault = "hang"
    asking = asyncio.create_task(streamed(stack))
    await until(lambda: len(stack.prefill.generated) == 1)
    stack.prefill.generate_fault = ""
    assert await asking == (expected(stack), "length")
    handoffs = [order["kv_transfer_params"]["tilert_handoff"] for order in stack.prefill.generated]
    assert len(set(handoffs)) == 2
    await until(lambda: handoffs[0] in stack.nodes[0].cancelled + stack.nodes[1].cancelled)


async def test_the_native_pool_gets_the_resolved_parameters_and_no_default_of_its_own(
    open_stack: Open, model_dir: Any
) -> None:
    stack = await speaking(open_stack, model_dir, 1)
    stack.decode.fault, stack.decode.after = "die", 5
    await streamed(stack, seed=7, top_p=0.5, stop_token_ids=[399])
    order = json.loads(stack.prefill.native_seen[-1])
    told = len(order["prompt"]) - len(stack.ids("the fox"))
    assert order["prompt"] == [*stack.ids("the fox"), *expected(stack)[:told]] and 1 <= told <= 6
    assert order["max_tokens"] == TOKENS - told
    given = {"temperature": 0, "seed": 7, "top_p": 0.5, "stop_token_ids": [399]}
    neutral = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert {name: order.get(name) for name in (*given, *neutral)} == {**given, **neutral}
    assert not order.get("ignore_eos") and order["stream"] is True and order["kv_transfer_params"] is None
    assert stack.prefill.headers[-1]["content-type"] == "application/json"
