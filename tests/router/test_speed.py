"""The speed path between fakes: what is sent where, and what the client gets."""

import asyncio
import json

import pytest

from router.fake import FakeDecode, FakePrefill
from tests.router.stack import CHAT, COMPLETIONS, NO_FALLBACK, SPEED, Open, until


def text(events: list) -> str:  # type: ignore[type-arg]
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


async def test_chat_is_streamed_with_the_role_first_and_the_reasons_last(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=40), [FakeDecode(tokens=[41, 42, 43])])
    role, *chunks = await stack.events(max_tokens=4)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert text(chunks) == stack.text([40, 41, 42, 43])
    assert {chunk["model"] for chunk in chunks} == {"tiny"}


async def test_usage_comes_when_asked_for(open_stack: Open) -> None:
    stack = await open_stack()
    *chunks, last = await stack.events(max_tokens=3, stream_options={"include_usage": True})
    assert last["choices"] == [] and "usage" not in chunks[0]
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["total_tokens"] == 3 + last["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_whole_reply_says_what_the_stream_says(open_stack: Open, path: str) -> None:
    stack = await open_stack()
    events = await stack.events(path, max_tokens=4)
    whole = await stack.whole(path, max_tokens=4)
    choice = whole["choices"][0]
    parts = [event["choices"][0] for event in events]
    streamed = "".join(part["delta"]["content"] if path == CHAT else part["text"] for part in parts)
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == streamed != ""
    assert choice["finish_reason"] == parts[-1]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 4
    assert whole["system_fingerprint"].startswith("speedtier-")


async def test_both_legs_carry_the_same_handoff_and_parameters(open_stack: Open) -> None:
    stack = await open_stack()
    headers = {**SPEED, "authorization": "Bearer k", "x-request-id": "r1", "traceparent": "00-a-b-01"}
    async with stack.ask(headers=headers, max_tokens=4, seed=5, top_p=0.5, temperature=0.7, stop="zz") as reply:
        assert reply.headers["x-speedtier-class"] == "speed"
        assert stack.url.startswith("http://127.0.0.1") and reply.headers["x-speedtier-node"]
        assert (await reply.json())["id"] == "chatcmpl-r1"
    [generated], [order] = stack.prefill.generated, stack.decode.orders
    params = generated["kv_transfer_params"]
    assert params == {"tilert_host": "127.0.0.1", "tilert_ctrl_port": 7001, "tilert_handoff": order["rid"]}
    assert generated["sampling_params"]["max_tokens"] == 1 and "stop" not in generated["sampling_params"]
    assert order["first_token_id"] == stack.prefill.first and order["max_tokens"] == 3 and order["stream"] is True
    assert order["sampling"] == {
        "temperature": 0.7,
        "top_p": 0.5,
        "seed": 5,
        "stop_token_ids": [0],
        "eos_token_ids": [2],
    }
    [told] = stack.decode.headers
    assert "authorization" not in told
    assert (told["x-request-id"], told["traceparent"]) == ("r1", "00-a-b-01")
    render, generate = stack.prefill.headers[-2:]
    assert render["authorization"] == generate["authorization"] == "Bearer k"


async def test_legs_of_a_request_without_an_id_carry_the_replys(open_stack: Open) -> None:
    stack = await open_stack()
    name = (await stack.whole(max_tokens=3))["id"].removeprefix("chatcmpl-")
    assert stack.prefill.headers[-1]["x-request-id"] == stack.decode.headers[0]["x-request-id"] == name


async def test_a_connection_to_the_node_serves_the_next_request(open_stack: Open) -> None:
    stack = await open_stack()
    for _ in range(3):
        await stack.whole(max_tokens=4)
        await asyncio.sleep(0.02)
    assert len(set(stack.decode.peers)) == 1 and stack.decode.cancelled == []


@pytest.mark.contract("R3")
async def test_the_first_token_reaches_the_client_while_the_decode_node_is_mute(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(fault="mute")])
    async with stack.ask(stream=True, max_tokens=4) as reply:
        seen = b""
        while b'"content":"' + stack.text([stack.prefill.first]).encode() not in seen:
            seen += await reply.content.readany()
    await until(lambda: stack.decode.hung_up)


@pytest.mark.parametrize(
    ("first", "finish", "fields", "reason"),
    [
        (9, ("length", None), {"max_tokens": 1}, ("length", None)),
        (2, ("stop", None), {}, ("stop", None)),
        (0, ("stop", 0), {}, ("stop", 0)),
        (9, ("stop", 9), {"stop_token_ids": [9]}, ("stop", 9)),
        (40, ("length", None), {"stop": "STOP"}, ("stop", "STOP")),
        # An end that only the prefill server knows of.
        (77, ("stop", 77), {}, ("stop", 77)),
    ],
)
async def test_a_first_token_that_ends_the_reply_never_reaches_the_decode_node(
    open_stack: Open, model_dir, first, finish, fields, reason
) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=first, finish=finish))
    if fields.get("stop"):
        fields = {"stop": stack.text([first])}
        reason = ("stop", stack.text([first]))
    choice = (await stack.whole(**fields))["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == reason
    await until(lambda: stack.decode.cancelled)
    assert stack.decode.orders == []
    assert stack.decode.cancelled == [stack.prefill.generated[0]["kv_transfer_params"]["tilert_handoff"]]


async def test_a_stop_string_ends_the_reply_and_cancels_the_rest(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41, 42, 43, *([44] * 400)], pace_s=0.002)
    stack = await open_stack(nodes=[node])
    stop = stack.text([42, 43])
    choice = (await stack.whole(stop=[stop], max_tokens=400))["choices"][0]
    assert choice["message"]["content"] == stack.text([9, 41])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    await until(lambda: node.cancelled and node.hung_up)
    assert (await stack.whole(max_tokens=3))["usage"]["completion_tokens"] == 3


async def test_lines_with_several_tokens_are_one_chunk_each(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41, 42, 43, 44], per_line=2)])
    _, *chunks = await stack.events(max_tokens=5, return_token_ids=True)
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[9], [41, 42], [43, 44]]


async def test_a_length_that_the_node_cannot_hold_is_clamped_or_refused(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41] * 100, max_tokens=40)], classes=NO_FALLBACK)
    prompt = len(stack.ids("the fox"))
    assert (await stack.whole())["usage"]["total_tokens"] == 40
    async with stack.ask(max_tokens=40) as reply:
        error = (await reply.json())["error"]
        assert reply.status == 400 and error["param"] == "max_tokens"
        assert "40 tokens" in error["message"] and str(40 - prompt) in error["message"]
    async with stack.ask(COMPLETIONS, prompt=[9] * 40) as reply:
        assert reply.status == 400 and "40 tokens" in (await reply.json())["error"]["message"]
    assert len(stack.decode.orders) == 1


async def test_an_early_end_that_the_node_gives_is_passed_on(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41, 42])])
    *_, last = await stack.events(max_tokens=50)
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["delta"] == {"content": ""}


async def test_every_request_is_logged_once(open_stack: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "router.access")
    stack = await open_stack()
    await stack.whole(max_tokens=4)
    await stack.events(max_tokens=4, n=2)
    lines = [json.loads(each.message) for each in caplog.records if each.name == "router.access"]
    first, second = lines
    assert first["class"] == first["served_by"] == "speed" and first["status"] == 200
    assert first["completion_tokens"] == 4 and first["finish_reason"] == "length"
    assert {"render_ms", "queue_ms", "prefill_ms", "decode_ms", "first_token_ms", "total_ms"} <= first.keys()
    assert (second["served_by"], second["fallback"]) == ("native", "n")


@pytest.mark.contract("R2")
@pytest.mark.parametrize("length", [1, 100])
@pytest.mark.parametrize("token", [100_000, 2**31, 2**32, 2**63, 10**40])
async def test_ids_that_are_no_tokens_are_refused_in_the_servers_words(
    open_stack: Open, token: int, length: int
) -> None:
    stack = await open_stack()
    async with stack.ask(COMPLETIONS, prompt=[9] * (length - 1) + [token], max_tokens=3) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["message"]) == (400, f"Token id {token} is out of vocabulary")
    await until(lambda: not stack.decode.kept.held)
    assert (await stack.whole(max_tokens=3))["usage"]["completion_tokens"] == 3
