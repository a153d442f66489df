"""``/status.json`` and the page's own words (R10)."""

import re
from pathlib import Path
from typing import Any

import pytest

from router.config import ApiKey
from router.fake import FakeDecode, FakePrefill
from tests.router.stack import SPEED, Open, Stack
from tests.router.test_keys import API_KEYS, bearing

pytestmark = pytest.mark.contract("R10")


async def status(stack: Stack, **headers: str) -> dict[str, Any]:
    async with stack.session.get(stack.url + "/status.json", headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        return dict(await reply.json())


async def test_servers_queues_and_live_tokens(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 400, pace_s=0.005)
    stack = await open_stack(nodes=[node])
    async with stack.ask(stream=True, max_tokens=400) as reply:
        for _ in range(30):
            await reply.content.readany()
        now = await status(stack)
        (request,) = now["requests"]
        assert request["traffic_class"] == request["served_by"] == "speed" and request["tokens"] >= 20
        assert request["tokens_per_s"] > 1 and 0 < request["age_s"] < 60 and now["tokens"] >= 20 and now["open"] == 1
        assert {each["name"]: each["open"] for each in now["classes"]} == {"speed": 1, "native": 0}
        decode = next(each for each in now["nodes"] if each["kind"] == "decode")
        assert (decode["state"], decode["slots"], decode["in_flight"]) == ("up", 1, 1)
        reply.close()


async def test_last_errors_have_nothing_that_anybody_wrote(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, generate_fault="crash"), native=())
    async with stack.ask(headers={**SPEED, "x-request-id": "fox-id"}, user="fox-user") as reply:
        assert reply.status == 502
    async with stack.ask(headers={"x-traffic-class": "fox"}) as reply:
        assert reply.status == 400
    now = await status(stack)
    (error,) = now["errors"]
    assert (error["kind"], error["status"], error["traffic_class"]) == ("PeerBroken", 502, "speed")
    assert "fox" not in str(now) and "engine is dead" not in str(now)


async def test_who_may_read_it(open_stack: Open, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("admin-secret-of-some-length")
    admin = {"authorization": "Bearer admin-secret-of-some-length"}
    settings: list[tuple[dict[str, Any], dict[str, str], list[dict[str, str]]]] = [
        ({}, {}, []),
        ({"api_keys": API_KEYS}, bearing("bob"), [{}, admin]),
        ({"api_keys": API_KEYS, "admin_key_file": str(file)}, admin, [{}, bearing("bob")]),
        ({"admin_key_file": str(file)}, admin, [{}]),
    ]
    for given, opens, closed in settings:
        stack = await open_stack(**given)
        await status(stack, **opens)
        for headers in closed:
            async with stack.session.get(stack.url + "/status.json", headers=headers) as reply:
                assert reply.status == 401
        async with stack.session.get(stack.url + "/") as reply:
            assert reply.status == 200 and "default-src 'none'" in reply.headers["content-security-policy"]


async def test_the_page_asks_nobody_else(open_stack: Open) -> None:
    stack = await open_stack(api_keys=(ApiKey(name="k", sha256="0" * 64),))
    async with stack.session.get(stack.url + "/") as reply:
        page = await reply.text()
    assert not re.findall(r"https?://|//[a-z]|@import|url\(", page)
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,"}
