"""API keys: who is let in, whose state is whose, and that no key is ever told."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from router.config import ApiKey
from router.tenancy import salt
from tests.router.stack import CHAT, COMPLETIONS, Open, Stack

KEYS = {"alice": "sk-alice-secret", "bob": "sk-bob-secret", "carol": "sk-carol-secret"}


def known(name: str, **fields: Any) -> ApiKey:
    return ApiKey(name=name, sha256=hashlib.sha256(KEYS[name].encode()).hexdigest(), **fields)


API_KEYS = (known("alice", tenant="a"), known("bob", tenant="b"), known("carol", traffic_class="speed"))


def bearing(name: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}", **more}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/models", "/v1/embeddings", "/nope", "/metricsx", "/health/"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sk-alice-secret"}])
async def test_without_a_known_key_nothing_is_served(open_stack: Open, path: str, headers: dict[str, str]) -> None:
    stack = await open_stack(api_keys=API_KEYS)
    async with stack.session.post(stack.url + path, json={}, headers=headers) as reply:
        assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert (await reply.json())["error"]["type"] == "AuthenticationError"
    assert stack.prefill.calls == []


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
async def test_what_balancers_and_prometheus_ask_is_open(open_stack: Open, path: str) -> None:
    stack = await open_stack(api_keys=API_KEYS)
    async with stack.session.get(stack.url + path) as reply:
        assert reply.status == 200


@pytest.mark.contract("R9")
async def test_a_key_names_its_class_and_its_owner(open_stack: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "router.access")
    stack = await open_stack(api_keys=API_KEYS)
    async with stack.ask(headers=bearing("carol", **{"x-traffic-class": "native"}), max_tokens=2) as reply:
        assert reply.status == 200 and reply.headers["x-speedtier-class"] == "speed"
    async with stack.ask(headers={"x-api-key": KEYS["bob"]}) as reply:
        assert reply.status == 200 and reply.headers["x-speedtier-class"] == "native"
    lines = [json.loads(each.message) for each in caplog.records if each.name == "router.access"]
    assert [(line["key"], line["class"], line["class_from"]) for line in lines] == [
        ("carol", "speed", "key"),
        ("bob", "native", "default"),
    ]


async def salts(stack: Stack, headers: dict[str, str], **fields: Any) -> tuple[str | None, str | None]:
    """What both tiers were given."""
    async with stack.ask(headers={**headers, "x-traffic-class": "native"}, **fields) as reply:
        assert reply.status == 200
    async with stack.ask(headers={**headers, "x-traffic-class": "speed"}, max_tokens=2, **fields) as reply:
        assert reply.status == 200
    return json.loads(stack.prefill.native_seen[-1]).get("cache_salt"), stack.prefill.generated[-1].get("cache_salt")


@pytest.mark.contract("H12")
async def test_tenants_share_no_state_and_both_tiers_are_told_so(open_stack: Open) -> None:
    keys = (*API_KEYS[:2], known("carol"))
    stack = await open_stack(api_keys=keys)
    alice, other = await salts(stack, bearing("alice"))
    assert alice == other == salt("a", None)
    bob, _ = await salts(stack, bearing("bob"))
    own, _ = await salts(stack, bearing("alice"), cache_salt="mine")
    assert (await salts(stack, bearing("carol"))) == (None, None)
    # Whoever knows another's salt cannot ask for it.
    forged, _ = await salts(stack, bearing("carol"), cache_salt=str(alice))
    assert len({alice, bob, own, forged}) == 4


@pytest.mark.parametrize("wrong", ["", 5, "a@b", "x" * 129])
async def test_a_salt_that_vllm_refuses_is_refused(open_stack: Open, wrong: object) -> None:
    stack = await open_stack(api_keys=API_KEYS)
    async with stack.ask(headers=bearing("alice"), cache_salt=wrong) as reply:
        assert reply.status == 400 and (await reply.json())["error"]["param"] == "cache_salt"


async def test_a_body_that_hides_its_salt_is_refused(open_stack: Open) -> None:
    stack = await open_stack(api_keys=API_KEYS)
    for path in (CHAT, "/v1/messages"):
        for raw in (b'{"x": NaN}', '{"a": 1}'.encode("utf-16"), b"[1]"):
            async with stack.session.post(stack.url + path, data=raw, headers=bearing("alice")) as reply:
                assert reply.status == 400


def test_the_parts_of_a_salt_cannot_be_shifted_into_each_other() -> None:
    pairs = [("a", None), ("a", ""), ("a", "b"), ("ab", None), (None, "ab"), (None, "b"), ("a", "-")]
    assert len({salt(*pair) for pair in pairs}) == len(pairs)
    assert salt(None, None) is None


async def test_no_key_is_told_anywhere(open_stack: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    admin, upstream = tmp_path / "admin", tmp_path / "upstream"
    admin.write_text("admin-secret-of-some-length")
    upstream.write_text("upstream-secret")
    stack = await open_stack(api_keys=API_KEYS, admin_key_file=str(admin), upstream_key_file=str(upstream))
    said = []
    for name in KEYS:
        for more in ({}, {"x-traffic-class": "speed"}, {"x-traffic-class": "nope"}):
            for fields in ({}, {"n": 2}, {"model": "nope"}, {"max_tokens": -1}):
                async with stack.ask(headers=bearing(name, **more), **fields) as reply:
                    said += [await reply.text(), str(reply.headers)]
    async with stack.ask(headers={"authorization": "Bearer sk-wrong-secret"}) as reply:
        said += [await reply.text(), str(reply.headers)]
    for path in ("/metrics", "/ready", "/health", "/", "/status.json", "/v1/models"):
        async with stack.session.get(stack.url + path, headers=bearing("alice")) as reply:
            said += [await reply.text(), str(reply.headers)]
    for headers in (bearing("alice"), {"authorization": "Bearer admin-secret-of-some-length"}):
        for path in ("/status.json", "/admin/nodes", "/openapi.json"):
            async with stack.session.get(stack.url + path, headers=headers) as reply:
                said += [await reply.text(), str(reply.headers)]
    assert any('"in_flight"' in text for text in said), "one of them was the operator's"
    said += [each.getMessage() for each in caplog.records] + [repr(each.__dict__) for each in caplog.records]
    # Neither keys nor the digests that the configuration holds, nor tenants.
    for secret in (*KEYS.values(), "secret", *(each.sha256 for each in API_KEYS)):
        assert not [text for text in said if secret in text]
