"""``/health`` and ``/ready``."""

from pathlib import Path
from typing import Any

import pytest

from router import RouterConfig, TrafficClass
from router.app import build_app
from router.config import NativePair
from router.fake import FakePrefill, serving
from speedtier.errors import ConfigError
from tests.router.stack import Open, Stack


async def ready(stack: Stack, query: str = "") -> tuple[int, dict[str, Any]]:
    async with stack.session.get(f"{stack.url}/ready{query}") as reply:
        return reply.status, await reply.json()


async def test_all_up(open_stack: Open) -> None:
    stack = await open_stack()
    status, state = await ready(stack)
    assert status == 200 and state["ready"]
    assert {name: each["ready"] for name, each in state["classes"].items()} == {"speed": True, "native": True}


async def test_one_class_down(open_stack: Open) -> None:
    stack = await open_stack(decode=())
    status, state = await ready(stack)
    assert status == 200 and not state["classes"]["speed"]["ready"]
    assert state["classes"]["speed"]["reason"] == "no decode server is configured"
    status, state = await ready(stack, "?class=speed")
    assert (status, state["ready"], list(state["classes"])) == (503, False, ["speed"])
    assert (await ready(stack, "?class=native"))[0] == 200
    status, state = await ready(stack, "?class=nope")
    assert status == 404 and "'speed', 'native'" in state["error"]["message"]


async def test_nothing_up(open_stack: Open) -> None:
    dead = ("http://127.0.0.1:9",)
    stack = await open_stack(prefill=dead, native=dead, decode=())
    status, state = await ready(stack)
    assert status == 503 and "prefill server is healthy" in state["classes"]["speed"]["reason"]
    async with stack.session.get(stack.url + "/health") as reply:
        assert reply.status == 200


async def test_a_pair_is_ready_with_both_of_its_servers(open_stack: Open, model_dir: Path) -> None:
    dead = "http://127.0.0.1:9"
    async with serving(FakePrefill(model_dir).app()) as url:
        for prefill, decode, well in ((url, url, True), (dead, url, False), (url, dead, False)):
            stack = await open_stack(native=(), native_pairs=(NativePair(prefill=prefill, decode=decode),))
            assert (await ready(stack, "?class=native"))[0] == (200 if well else 503)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"default_class": "warp"}, "default_class"),
        ({"classes": (TrafficClass(name="a", pool="speed"), TrafficClass(name="a", pool="native"))}, "differ"),
    ],
)
def test_a_config_that_contradicts_itself(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_app(RouterConfig(**settings))


@pytest.mark.contract("R9")
async def test_classes_have_the_names_that_the_operator_gives(open_stack: Open) -> None:
    classes = (TrafficClass(name="gold", pool="speed"), TrafficClass(name="bulk", pool="native"))
    stack = await open_stack(classes=classes, default_class="gold", class_header="x-tier")
    async with stack.ask(headers={"x-other": "1"}, max_tokens=2) as reply:
        assert reply.headers["x-speedtier-class"] == "gold" and "x-speedtier-node" in reply.headers
    async with stack.ask(headers={"x-tier": "bulk"}) as reply:
        assert reply.headers["x-speedtier-class"] == "bulk"
    async with stack.ask(headers={"x-tier": "gold"}, n=2) as reply:
        assert reply.headers["x-speedtier-class"] == "bulk"
