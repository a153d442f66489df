"""R7: which ids and keys the servers behind the router see."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from router import TrafficClass, running
from router.config import ApiKey, RouterConfig
from router.fake import FakeNative, FakePrefill, serving
from speedtier.errors import ConfigError
from tests.router.stack import CHAT, SPEED, Open, Stack

pytestmark = pytest.mark.contract("R7")
KEY, UPSTREAM = "sk-client-0123456789", "sk-vllm-9876543210"
TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
    "baggage": "user=7",
}


@pytest.fixture
def keyed(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "key"
    file.write_text(UPSTREAM + "\n")
    own = ApiKey(name="me", sha256=hashlib.sha256(KEY.encode()).hexdigest())
    return {"api_keys": (own,), "upstream_key_file": str(file)}


def seen(stack: Stack) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Headers that vLLM's servers and the decode node got."""
    assert stack.prefill.headers
    return stack.prefill.headers, stack.decode.headers


async def ask(stack: Stack, headers: dict[str, str], **fields: Any) -> str:
    async with stack.ask(headers=headers, max_tokens=3, **fields) as reply:
        assert reply.status == 200, await reply.text()
        await reply.read()
        return str(reply.headers["x-request-id"])


@pytest.mark.parametrize("tier", [SPEED, {"x-traffic-class": "native"}])
@pytest.mark.parametrize("stream", [False, True])
async def test_both_legs_and_the_reply_carry_one_id(open_stack: Open, tier: dict[str, str], stream: bool) -> None:
    stack = await open_stack()
    given = await ask(stack, {**tier, **TRACE, "x-request-id": "mine"}, stream=stream)
    made = [await ask(stack, {**tier, **TRACE}, stream=stream) for _ in range(2)]
    assert given == "mine" and len({given, *made}) == 3
    vllm, decode = seen(stack)
    expected = {*made, "mine"}
    for headers in (vllm, decode) if tier is SPEED else (vllm,):
        assert {each["x-request-id"] for each in headers if "x-request-id" in each} == expected
        traced = [each for each in headers if "traceparent" in each]
        assert len(traced) >= 3
        assert all(each.items() >= TRACE.items() for each in traced)


async def test_an_id_without_end_is_replaced(open_stack: Open) -> None:
    stack = await open_stack()
    assert len(await ask(stack, {"x-request-id": "x" * 4000})) == 32
    assert len(await ask(stack, {"x-request-id": ""})) == 32


@pytest.mark.parametrize("carrier", ["authorization", "x-api-key"])
@pytest.mark.parametrize("tier", [SPEED, {"x-traffic-class": "native"}])
async def test_without_keys_of_our_own_vllm_may_ask_for_them(
    open_stack: Open, carrier: str, tier: dict[str, str]
) -> None:
    stack = await open_stack()
    value = f"Bearer {KEY}" if carrier == "authorization" else KEY
    await ask(stack, {**tier, carrier: value})
    vllm, decode = seen(stack)
    assert all(each[carrier] == value for each in vllm)
    assert not any(KEY in json.dumps(each) for each in decode)


@pytest.mark.parametrize("carrier", ["authorization", "x-api-key"])
@pytest.mark.parametrize("tier", [SPEED, {"x-traffic-class": "native"}])
async def test_with_keys_of_our_own_the_clients_stays_here(
    open_stack: Open,
    keyed: dict[str, Any],
    carrier: str,
    tier: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "router")
    stack = await open_stack(**keyed)
    value = f"Bearer {KEY}" if carrier == "authorization" else KEY
    await ask(stack, {**tier, carrier: value})
    async with stack.session.get(stack.url + "/v1/models", headers={carrier: value}) as reply:
        assert reply.status == 200
    vllm, decode = seen(stack)
    assert all(each["authorization"] == f"Bearer {UPSTREAM}" and "x-api-key" not in each for each in vllm)
    told = json.dumps([vllm, decode]) + caplog.text
    assert KEY not in told and UPSTREAM not in json.dumps(decode) + caplog.text


async def test_without_an_upstream_key_none_is_sent(open_stack: Open, keyed: dict[str, Any]) -> None:
    stack = await open_stack(api_keys=keyed["api_keys"])
    await ask(stack, {"authorization": f"Bearer {KEY}"})
    assert all("authorization" not in each for each in stack.prefill.headers)


async def test_passed_endpoints_follow_the_same_rule(open_stack: Open, keyed: dict[str, Any]) -> None:
    server = FakeNative()
    async with serving(server.app()) as url:
        stack = await open_stack(native=(url,), **keyed)
        for path in ("/v1/messages", "/tokenize"):
            async with stack.session.post(stack.url + path, json={}) as reply:
                assert reply.status == 401
            async with stack.session.post(stack.url + path, json={}, headers={"x-api-key": KEY}) as reply:
                assert reply.status == 200 and reply.headers["x-request-id"]
    assert len(server.seen) == 2
    for each in server.seen:
        assert each.headers["authorization"] == f"Bearer {UPSTREAM}" and "x-api-key" not in each.headers


async def test_a_server_that_names_the_request_itself_is_heard(open_stack: Open) -> None:
    server = FakeNative(headers={"x-request-id": "theirs"})
    async with serving(server.app()) as url:
        stack = await open_stack(native=(url,))
        async with stack.session.post(stack.url + CHAT, json={}) as reply:
            assert reply.headers.getall("x-request-id") == ["theirs"]


async def test_errors_carry_the_id_too(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, render_fault="crash"), classes=_strict())
    async with stack.ask(headers={**SPEED, "x-request-id": "mine"}) as reply:
        assert (reply.status, reply.headers["x-request-id"]) == (502, "mine")


def _strict() -> tuple[TrafficClass, ...]:
    return TrafficClass(name="speed", pool="speed", fallback="none"), TrafficClass(name="native", pool="native")


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe", "schlüssel".encode()])
async def test_a_key_file_that_holds_no_key_stops_the_start(
    tmp_path: Path, keyed: dict[str, Any], content: bytes | None
) -> None:
    file = tmp_path / "other"
    if content is not None:
        file.write_bytes(content)
    config = RouterConfig(port=0, api_keys=keyed["api_keys"], upstream_key_file=str(file))
    with pytest.raises(ConfigError, match="upstream_key_file"):
        async with running(config):
            pass
