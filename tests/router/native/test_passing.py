"""vLLM's other endpoints: what reaches the native tier, what never does, and how."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import FormData, WSServerHandshakeError
from yarl import URL

from router import TrafficClass
from router.config import ModelAlias
from router.fake import FakeNative, serving
from router.native.endpoints import OPERATOR, PASSED, Passed
from tests.router.stack import CHAT, COMPLETIONS, SPEED, Open, Stack

pytestmark = pytest.mark.contract("R10")
Behind = Callable[..., Awaitable[Stack]]


@pytest.fixture
async def behind(open_stack: Open) -> AsyncIterator[Behind]:
    """Opens a router in front of native servers: ``await behind(server, ..., **settings)``."""
    async with AsyncExitStack() as exits:

        async def open_(*servers: FakeNative, **settings: Any) -> Stack:
            urls = [await exits.enter_async_context(serving(each.app())) for each in servers]
            return await open_stack(native=tuple(urls), **settings)

        yield open_


def filled(path: str) -> str:
    return path.replace("{response_id}", "resp_1.a").replace("{adapter_name}", "x")


@pytest.mark.parametrize("endpoint", PASSED, ids=lambda each: each.path)
async def test_each_passed_endpoint_reaches_the_server_as_it_was_asked(behind: Behind, endpoint: Passed) -> None:
    server = FakeNative(status=207, body=b'{"odd": 1}', headers={"x-own": "1"})
    stack = await behind(server)
    path = filled(endpoint.path) + "?a=b%20c&a=d"
    for method in endpoint.methods:
        data = b'{ "model": "tiny" }' if endpoint.body == "json" else None
        headers = {"content-type": "application/json"} if data else {}
        async with stack.session.request(method, stack.url + path, data=data, headers=headers) as reply:
            assert (reply.status, await reply.read(), reply.headers["x-own"]) == (207, b'{"odd": 1}', "1")
            assert reply.headers["x-speedtier-class"] == "native"
        seen = server.seen[-1]
        assert (seen.method, seen.path, seen.body) == (method, path, data or b"")


@pytest.mark.parametrize("path", OPERATOR)
async def test_operators_endpoints_are_not_there(behind: Behind, path: str) -> None:
    server = FakeNative()
    stack = await behind(server)
    for method in ("GET", "POST", "DELETE", "PUT", "PATCH"):
        for spelling in (filled(path), filled(path) + "/", filled(path) + "?level=1"):
            async with stack.session.request(method, stack.url + spelling, json={}) as reply:
                error = (await reply.json())["error"]
                # What the router has of the same name, such as a method of a longer path, is refused by method.
                assert reply.status in (404, 405) and error["type"] == "NotFoundError"
    assert server.seen == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/../../sleep",
        "/v1/responses/%2e%2e/cancel",
        "/v1/responses/..%2f..%2fsleep",
        "/v1/responses/./cancel",
        "//sleep",
        "/v1//load_lora_adapter",
        "/V1/embeddings",
        "/v1/embeddings/",
        "/v1/embeddings%00",
        "/v1/new_endpoint",
        "/metrics/x",
        "/docs",
    ],
)
async def test_no_spelling_leads_around_the_table(behind: Behind, path: str) -> None:
    server = FakeNative()
    stack = await behind(server)
    for method in ("GET", "POST"):
        async with stack.session.request(method, URL(stack.url + path, encoded=True), data=b"{}") as reply:
            assert reply.status in (400, 404, 405), await reply.text()
    assert server.seen == []


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/embeddings", "/v1/responses/resp_1"])
async def test_preflights_and_heads_are_the_servers(behind: Behind, path: str) -> None:
    server = FakeNative(headers={"access-control-allow-origin": "*"})
    stack = await behind(server)
    async with stack.session.options(stack.url + path, headers={"origin": "http://a"}) as reply:
        assert reply.headers["access-control-allow-origin"] == "*"
    assert server.seen[-1].method == "OPTIONS"
    if "resp_1" in path:
        async with stack.session.head(stack.url + path) as reply:
            assert reply.status == 200
        assert server.seen[-1].method == "HEAD"


async def test_a_websocket_is_refused_cleanly(behind: Behind) -> None:
    server = FakeNative()
    stack = await behind(server)
    for path in ("/v1/realtime", "/v1/responses/resp_1"):
        with pytest.raises(WSServerHandshakeError) as refused:
            await stack.session.ws_connect(stack.url + path)
        assert refused.value.status == 501
    async with stack.session.get(stack.url + "/v1/realtime") as reply:
        assert reply.status == 501 and (await reply.json())["error"]["type"] == "NotImplementedError"
    assert server.seen == []


@pytest.mark.contract("R7")
async def test_the_clients_transfer_parameters_are_refused_everywhere(behind: Behind) -> None:
    server = FakeNative()
    stack = await behind(server)
    for endpoint in PASSED:
        for body in ({"kv_transfer_params": {}}, {"vllm_xargs": {"kv_transfer_params": "x"}}):
            for method in endpoint.methods:
                async with stack.session.request(method, stack.url + filled(endpoint.path), json=body) as reply:
                    assert reply.status == 400, endpoint
                    assert (await reply.json())["error"]["param"] == "kv_transfer_params"
    form = FormData()
    form.add_field("file", b"RIFF", filename="a.wav")
    form.add_field("vllm_xargs", '{"kv_transfer_params": "x"}')
    async with stack.session.post(stack.url + "/v1/audio/transcriptions", data=form) as reply:
        assert reply.status == 400
    assert server.seen == []


async def test_forms_pass_untouched(behind: Behind) -> None:
    server = FakeNative()
    stack = await behind(server)
    form = FormData()
    form.add_field("file", bytes(range(256)) * 40, filename="a.wav")
    form.add_field("model", "whisper")
    async with stack.session.post(stack.url + "/v1/audio/transcriptions", data=form) as reply:
        assert reply.status == 200
    seen = server.seen[-1]
    assert seen.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert bytes(range(256)) * 40 in seen.body and b'name="model"' in seen.body


async def test_what_one_server_keeps_is_asked_of_each(behind: Behind) -> None:
    one, two = FakeNative(keeps=frozenset({"resp_1"})), FakeNative(keeps=frozenset({"resp_2", "cancel"}))
    stack = await behind(one, two)
    for path, method, status in [
        ("/v1/responses/resp_1", "GET", 200),
        ("/v1/responses/resp_2", "GET", 200),
        ("/v1/responses/resp_2", "DELETE", 200),
        ("/v1/responses/resp_2/cancel", "POST", 200),
        ("/v1/responses/resp_3", "GET", 404),
    ]:
        async with stack.session.request(method, stack.url + path) as reply:
            assert reply.status == status, path


async def test_a_response_goes_on_where_the_one_before_is_kept(behind: Behind) -> None:
    servers = [FakeNative(status=404), FakeNative(), FakeNative(status=404)]
    stack = await behind(*servers)
    for asked, status, calls in [
        ({"previous_response_id": "resp_1"}, 200, [1, 1, 0]),
        ({"model": "x"}, 404, [2, 1, 0]),
    ]:
        async with stack.session.post(stack.url + "/v1/responses", json=asked) as reply:
            assert reply.status == status
        assert [len(server.seen) for server in servers] == calls


async def test_no_native_server(open_stack: Open) -> None:
    stack = await open_stack(native=())
    async with stack.session.post(stack.url + "/v1/embeddings", json={}) as reply:
        assert reply.status == 503 and "`native`" in (await reply.json())["error"]["message"]


@pytest.mark.contract("R9")
async def test_a_class_of_the_speed_tier_falls_back_or_is_refused(behind: Behind) -> None:
    server = FakeNative()
    stack = await behind(server)
    async with stack.session.post(stack.url + "/v1/messages", json={"messages": []}, headers=SPEED) as reply:
        assert (reply.status, reply.headers["x-speedtier-fallback"]) == (200, "endpoint")
        assert reply.headers["x-speedtier-class"] == "native"
    strict = (TrafficClass(name="speed", pool="speed", fallback="none"), TrafficClass(name="native", pool="native"))
    stack = await behind(server, classes=strict)
    async with stack.session.post(stack.url + "/v1/messages", json={"messages": []}, headers=SPEED) as reply:
        assert reply.status == 501 and "/v1/messages" in (await reply.json())["error"]["message"]
    async with stack.session.post(stack.url + "/tokenize", json={"prompt": "x"}, headers=SPEED) as reply:
        assert reply.status == 200, "it writes no tokens, so no tier is meant"


@pytest.mark.contract("R9")
async def test_servers_see_the_models_own_name(behind: Behind) -> None:
    server = FakeNative()
    stack = await behind(server, aliases=(ModelAlias(name="fast", model="tiny", traffic_class="speed"),))
    async with stack.session.post(stack.url + "/tokenize", json={"model": "fast", "prompt": "x"}) as reply:
        assert reply.status == 200
    assert json.loads(server.seen[-1].body) == {"model": "tiny", "prompt": "x"}
