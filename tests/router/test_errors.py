"""What the client is told when something fails (R2), before and after the first token."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from router import DecodeNodeConfig
from router.fake import FakeDecode, FakePrefill, serving
from tests.router.stack import CHAT, COMPLETIONS, NO_FALLBACK, SPEED, Open, Stack, until

pytestmark = pytest.mark.contract("R2")
QUICK = {"connect": 2.0, "render": 0.5, "prefill": 0.5, "handoff": 0.5, "stall": 0.5}


async def refusal(stack: Stack, **fields: Any) -> tuple[int, dict[str, Any]]:
    async with stack.ask(**fields) as reply:
        error = (await reply.json())["error"]
        assert reply.headers["x-speedtier-class"] == "speed"
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == reply.status
        return reply.status, error


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("hang", 504, "within 0.5 s"),
        ("crash", 502, "engine is dead"),
        ("die", 502, "cannot be reached"),
        ("refuse", 400, "no such thing"),
    ],
)
@pytest.mark.parametrize("leg", ["render_fault", "generate_fault"])
async def test_a_prefill_server_that_fails(open_stack: Open, model_dir, leg, fault, status, says) -> None:
    timeouts = QUICK if fault == "hang" else None
    stack = await open_stack(FakePrefill(model_dir, **{leg: fault}), timeouts=timeouts, classes=NO_FALLBACK)
    got, error = await refusal(stack, stream=True)
    assert got == status and says in error["message"]
    assert stack.decode.orders == []
    setattr(stack.prefill, leg, "")
    assert (await stack.whole(max_tokens=3))["usage"]["completion_tokens"] == 3


async def test_a_refusal_of_the_prefill_server_is_passed_on_byte_for_byte(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir, generate_fault="refuse"))
    _, error = await refusal(stack)
    assert error == {"message": "no such thing", "type": "BadRequestError", "param": "thing", "code": 400}
    await until(lambda: stack.decode.cancelled)


DECODE_FAULTS = [
    ("busy", 429, "no slot is free", 0),
    ("timeout", 504, "the state did not arrive", 0),
    ("failed", 502, "fingerprint: weights differ", 0),
    ("mute", 504, "did not answer", 0),
    *(
        (fault, status, says, after)
        for after in (0, 2)
        for fault, status, says in [
            ("die", 502, "broke off"),
            ("cut", 502, "before it was done"),
            ("error", 502, "engine stopped"),
            ("cancelled", 502, "'cancelled'"),
            ("garbage", 502, "no good"),
            ("hang", 504, "sent no token"),
        ]
    ),
]


@pytest.mark.parametrize(("fault", "status", "says", "after"), DECODE_FAULTS)
async def test_a_decode_node_that_fails(open_stack: Open, fault, status, says, after) -> None:
    node = FakeDecode(tokens=[41] * 19, fault=fault, after=after)
    timeouts = QUICK if fault in ("hang", "mute") else None
    wait_s = 0.1 if fault == "busy" else 30.0
    stack = await open_stack(nodes=[node], timeouts=timeouts, queue_wait_s=wait_s, classes=NO_FALLBACK)
    got, error = await refusal(stack, max_tokens=20)
    assert got == status and says in error["message"]

    *events, last = await stack.events(max_tokens=20)
    assert last["error"]["code"] == status and says in last["error"]["message"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * len(events)
    assert len(events) >= 2

    await until(lambda: not stack.decode.active)
    node.fault = ""
    assert (await stack.whole(max_tokens=20))["usage"]["completion_tokens"] == 20


async def test_a_busy_node_says_when_to_come_back(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(fault="busy")], queue_wait_s=0.1, classes=NO_FALLBACK)
    async with stack.ask(max_tokens=20) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (429, "7")


@pytest.mark.contract("R4")
async def test_a_node_that_another_router_uses_is_waited_for(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41, 42, 43], fault="busy", lease=False)
    stack = await open_stack(nodes=[node], queue_wait_s=5)
    asking = asyncio.create_task(stack.whole(max_tokens=4))
    await until(lambda: len(node.orders) > 2)
    node.fault = ""
    assert (await asking)["usage"]["completion_tokens"] == 4
    assert len({order["rid"] for order in node.orders}) == 1


@pytest.mark.parametrize("setting", ["prefill", "decode"])
async def test_nothing_configured(open_stack: Open, setting: str) -> None:
    stack = await open_stack(classes=NO_FALLBACK, **{setting: ()})
    status, error = await refusal(stack)
    assert status == 503 and f"`{setting}`" in error["message"]
    async with stack.session.post(stack.url + CHAT, json={"model": "tiny"}) as reply:
        assert (reply.status, await reply.json()) == (200, {"native": True})


async def test_no_native_pool(open_stack: Open) -> None:
    stack = await open_stack(native=())
    async with stack.session.post(stack.url + CHAT, json={"model": "tiny"}) as reply:
        assert reply.status == 503 and "`native`" in (await reply.json())["error"]["message"]
    async with stack.session.get(stack.url + "/v1/models") as reply:
        assert (await reply.json())["data"][0]["id"] == "tiny"


async def test_a_decode_node_that_is_down_and_comes_up(open_stack: Open, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    stack = await open_stack(nodes=[], decode=(DecodeNodeConfig(url=url),), classes=NO_FALLBACK)
    status, error = await refusal(stack)
    assert status == 502 and "cannot be reached" in error["message"]
    async with stack.session.post(stack.url + CHAT, json={"model": "tiny"}) as reply:
        assert reply.status == 200
    node = FakeDecode()
    async with serving(node.app(), unused_tcp_port):
        assert (await stack.whole(max_tokens=3))["usage"]["completion_tokens"] == 3
    status, _ = await refusal(stack)
    assert status == 502


async def test_a_decode_node_that_swallows_everything(open_stack: Open, unused_tcp_port: int) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", unused_tcp_port):
        decode = (DecodeNodeConfig(url=f"http://127.0.0.1:{unused_tcp_port}"),)
        stack = await open_stack(nodes=[], decode=decode, timeouts={"connect": 1.0}, classes=NO_FALLBACK)
        status, error = await refusal(stack)
    assert status == 504 and "within 1 s" in error["message"]


async def test_waiters_do_not_wait_for_a_node_that_died(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 400, pace_s=0.01)
    async with serving(node.app()) as url:
        decode = (DecodeNodeConfig(url=url),)
        timeouts = {"cancel": 0.3}
        stack = await open_stack(nodes=[], decode=decode, timeouts=timeouts, queue_wait_s=30, classes=NO_FALLBACK)
        first = asyncio.create_task(refusal(stack, max_tokens=400))
        await until(lambda: node.active)
        waiting = asyncio.create_task(refusal(stack, max_tokens=400))
        await asyncio.sleep(0.1)
    assert (await first)[0] == 502
    assert (await asyncio.wait_for(waiting, 20))[0] == 502


async def test_without_a_tokenizer_the_way_out_is_named(open_stack: Open, model_dir) -> None:
    cards = [{"id": "tiny", "root": "some/hub-name", "parent": None}]
    stack = await open_stack(FakePrefill(model_dir, cards=cards))
    status, error = await refusal(stack)
    assert status == 503 and "`tokenizer`" in error["message"]
    stack = await open_stack(FakePrefill(model_dir, cards=cards), tokenizer=str(model_dir))
    assert await stack.whole(max_tokens=2)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", [b"{nope", b"", b"[1]", b"null"])
async def test_malformed_bodies(open_stack: Open, path: str, body: bytes) -> None:
    stack = await open_stack()
    headers = {**SPEED, "content-type": "application/json"}
    async with stack.session.post(stack.url + path, data=body, headers=headers) as reply:
        assert reply.status == 400 and (await reply.json())["error"]["code"] == 400


async def test_a_body_that_only_vllm_can_read_is_refused(open_stack: Open) -> None:
    stack = await open_stack()
    body = b'{"model": "tiny", "prompt": "the fox", "user": NaN}'
    headers = {**SPEED, "content-type": "application/json"}
    async with stack.session.post(stack.url + COMPLETIONS, data=body, headers=headers) as reply:
        assert reply.status == 400
    assert stack.prefill.generated == []


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "nope"}, 404, "model"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"path": COMPLETIONS, "prompt": ""}, 400, "prompt"),
    ],
)
async def test_what_vllm_refuses_is_refused_in_its_words(open_stack: Open, fields, status, param) -> None:
    stack = await open_stack()
    got, error = await refusal(stack, **fields)
    assert (got, error["param"]) == (status, param)
    assert (await stack.whole(max_tokens=2))["usage"]["completion_tokens"] == 2


async def test_other_endpoints_and_sizes(open_stack: Open) -> None:
    stack = await open_stack(body_limit=2048)
    async with stack.session.get(stack.url + "/v1/nope") as reply:
        assert reply.status == 404 and (await reply.json())["error"]["type"] == "NotFoundError"
    async with stack.session.get(stack.url + CHAT) as reply:
        assert reply.status == 405 and (await reply.json())["error"]["code"] == 404
    async with stack.ask(user="x" * 4096) as reply:
        assert reply.status == 413 and "body_limit" in (await reply.json())["error"]["message"]


async def test_a_class_that_is_not_configured(open_stack: Open) -> None:
    stack = await open_stack()
    async with stack.ask(headers={"x-traffic-class": "warp"}) as reply:
        error = (await reply.json())["error"]
    assert error["code"] == 400 and "'speed', 'native'" in error["message"]


async def test_a_request_that_never_arrives(open_stack: Open) -> None:
    stack = await open_stack(timeouts={"receive": 0.2})

    async def trickle():  # type: ignore[no-untyped-def]
        yield b'{"model":'
        await asyncio.sleep(5)

    async with ClientSession() as session, session.post(stack.url + CHAT, data=trickle()) as reply:
        assert reply.status == 408
        assert json.loads(await reply.text())["error"]["code"] == 408
