"""Which class a request gets, and who may say so (R9)."""

from typing import Any

import pytest

from router import RouterConfig, TrafficClass
from router.app import build_app
from router.body import look
from router.config import ApiKey, ModelAlias
from router.errors import BadRequest
from router.traffic import Classes
from speedtier.errors import ConfigError
from tests.router.stack import CHAT, Open

pytestmark = pytest.mark.contract("R9")
CLASSES = (
    TrafficClass(name="speed", pool="speed", service_tiers=("priority", "quick")),
    TrafficClass(name="native", pool="native", service_tiers=("bulk",)),
    TrafficClass(name="third", pool="native"),
)
ALIAS = ModelAlias(name="tiny-fast", model="tiny", traffic_class="speed")
DIGEST = "0" * 64


def key(**fields: Any) -> ApiKey:
    return ApiKey(name="k", sha256=DIGEST, **fields)


def choice(
    raw: bytes = b"{}", header: str | None = None, owner: ApiKey | None = None, **settings: Any
) -> tuple[str, str]:
    given = {"classes": CLASSES, "aliases": (ALIAS,), "api_keys": (owner,) if owner else ()}
    classes = Classes(RouterConfig(**{**given, **settings}))
    headers = {} if header is None else {"x-traffic-class": header}
    found = classes.choose(owner, headers, look(raw))
    return found.traffic.name, found.source


ALL = b'{"service_tier": "priority", "model": "tiny-fast"}'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("native", "default")),
        ({"raw": b'{"model": "tiny-fast"}'}, ("speed", "alias")),
        ({"raw": b'{"model": "tiny-fast", "service_tier": "bulk"}'}, ("native", "service_tier")),
        ({"raw": ALL, "header": "third"}, ("third", "header")),
        ({"raw": ALL, "header": "third", "owner": key(traffic_class="native")}, ("native", "key")),
        ({"raw": ALL, "owner": key()}, ("speed", "service_tier")),
        ({"raw": b'{"service_tier": "auto"}'}, ("native", "default")),
        ({"raw": b'{"service_tier": ["priority"]}'}, ("native", "default")),
        ({"raw": b"no json"}, ("native", "default")),
        ({"raw": ALL, "header": "third", "owner": key(traffic_class="native", may_choose=True)}, ("third", "header")),
        ({"owner": key(traffic_class="third", may_choose=True)}, ("third", "key")),
        ({"raw": ALL, "header": "third", "client_choice": False}, ("native", "default")),
        ({"raw": ALL, "header": "nope", "client_choice": False}, ("native", "default")),
        ({"raw": ALL, "header": "nope", "owner": key(traffic_class="native")}, ("native", "key")),
    ],
)
def test_the_order_and_what_is_not_read(given: dict[str, Any], expected: tuple[str, str]) -> None:
    assert choice(**given) == expected


def test_an_unknown_class_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match=r"x-traffic-class: 'nope' is no traffic class here; send one of"):
        choice(header="nope")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"aliases": (ModelAlias(name="a", model="m", traffic_class="warp"),)}, "traffic_class of 'a' = 'warp'"),
        ({"aliases": (ALIAS, ALIAS)}, "names must differ"),
        ({"aliases": (ALIAS, ModelAlias(name="b", model="tiny-fast", traffic_class="speed"))}, "an alias too"),
        ({"api_keys": (key(traffic_class="warp"),)}, "traffic_class of 'k' = 'warp'"),
        ({"api_keys": (key(), ApiKey(name="other", sha256=DIGEST))}, "sha256"),
        ({"api_keys": (key(), ApiKey(name="k", sha256="1" * 64))}, "name 'k' is there twice"),
        ({"upstream_key_file": "x"}, "needs api_keys"),
        (
            {"classes": (CLASSES[0], TrafficClass(name="native", pool="native", service_tiers=("priority",)))},
            "asks for two classes",
        ),
        (
            {"classes": (CLASSES[0], TrafficClass(name="native", pool="native", fallback_wait_s=1.0))},
            r"fallback_wait_s = 1.0 of 'native': a native class has no queue",
        ),
        (
            {"classes": (TrafficClass(name="s", pool="speed", fallback="none", fallback_wait_s=1.0),)},
            r"fallback_wait_s = 1.0 of 's': the class has no fallback",
        ),
    ],
)
def test_a_config_that_contradicts_itself(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_app(RouterConfig(**settings))


async def test_aliases_are_real_models_to_every_server(open_stack: Open) -> None:
    stack = await open_stack(
        classes=CLASSES, aliases=(ALIAS, ModelAlias(name="b", model="tiny", traffic_class="third"))
    )
    async with stack.ask(headers={"x-o": "1"}, model="tiny-fast", max_tokens=2) as reply:
        assert reply.status == 200 and reply.headers["x-speedtier-class"] == "speed"
        assert (await reply.json())["model"] == "tiny", "what vLLM calls it"
    raw = b'{"model": "b",  "temperature": 0.10, "messages": [ {"role":"user"} ], "stream": false}'
    async with stack.session.post(stack.url + CHAT, data=raw, headers={"content-type": "application/json"}) as reply:
        assert reply.headers["x-speedtier-class"] == "third"
    sent = stack.prefill.native_seen[-1]
    assert b'"model":"tiny"' in sent
    assert b"0.10" in sent and b'[ {"role":"user"} ]' in sent, "other fields keep their bytes"


async def test_aliases_are_listed_beside_the_models(open_stack: Open) -> None:
    gone = ModelAlias(name="b", model="not-served", traffic_class="third")
    stack = await open_stack(classes=CLASSES, aliases=(ALIAS, gone))
    async with stack.session.get(stack.url + "/v1/models") as reply:
        assert reply.status == 200 and reply.content_type == "application/json"
        cards = (await reply.json())["data"]
    assert [card["id"] for card in cards] == ["tiny", "tiny-fast"]
    assert {**cards[0], "id": "tiny-fast", "root": "tiny"} == cards[1]
    dead = await open_stack(classes=CLASSES, aliases=(ALIAS,), native=("http://127.0.0.1:9",))
    async with dead.session.get(dead.url + "/v1/models") as reply:
        assert reply.status == 502 and (await reply.json())["error"]["code"] == 502


async def test_a_tier_that_only_the_router_knows_stays_here(open_stack: Open) -> None:
    stack = await open_stack(classes=CLASSES)
    for tier, sent in (("bulk", None), ("default", "default")):
        async with stack.ask(headers={"x-o": "1"}, service_tier=tier) as reply:
            assert reply.headers["x-speedtier-class"] == "native"
        assert look(stack.prefill.native_seen[-1]).get("service_tier") == sent
    async with stack.ask(headers={"x-o": "1"}, service_tier="quick", max_tokens=2) as reply:
        assert reply.status == 200 and reply.headers["x-speedtier-class"] == "speed"


async def test_a_value_that_cannot_be_decoded_is_the_clients_error(open_stack: Open) -> None:
    stack = await open_stack(aliases=(ALIAS,), classes=CLASSES)
    for raw in (b'{"model": "\xff"}', b'{"model": 1e999}'):
        async with stack.session.post(stack.url + CHAT, data=raw) as reply:
            assert reply.status == 400 and (await reply.json())["error"]["param"] == "model"
