"""Conversations go back to the node that holds their state (R4, H12), while it has a slot."""

import asyncio

import pytest

from router.affinity import COARSE, FINE, Affinity
from router.fake import FakeDecode
from tests.router.stack import SPEED, Open

pytestmark = pytest.mark.contract("H12")
NAMED = ("x-session-id",)


def test_the_surest_key_decides() -> None:
    known = Affinity(NAMED)
    prompt = list(range(300))
    known.remember(known.keys({}, None, None, prompt), "a")
    known.remember(known.keys({"x-session-id": "s"}, None, None, [1]), "b")
    known.remember(known.keys({}, "cache", None, [1]), "c")
    assert known.node(known.keys({}, None, None, [*prompt, 7])) == "a"
    assert known.node(known.keys({"x-session-id": "s"}, "cache", None, prompt)) == "b"
    assert known.node(known.keys({}, "cache", None, prompt)) == "c"
    assert known.node(known.keys({}, None, None, [5, *prompt])) is None


def test_the_longest_beginning_decides() -> None:
    known = Affinity(NAMED)
    short, long = list(range(FINE)), list(range(4 * COARSE))
    known.remember(known.keys({}, None, None, long), "long")
    known.remember(known.keys({}, None, None, short), "short")
    assert known.node(known.keys({}, None, None, [*long, 1])) == "long"
    assert known.node(known.keys({}, None, None, [*short, *[9] * COARSE])) == "short"
    edited = [*long[: 2 * COARSE], *[9] * COARSE]
    assert known.node(known.keys({}, None, None, edited)) == "long"


def test_salts_share_nothing_and_a_node_can_be_forgotten() -> None:
    known = Affinity(NAMED)
    prompt = list(range(FINE))
    known.remember(known.keys({"x-session-id": "s"}, "k", "one", prompt), "a")
    assert known.node(known.keys({"x-session-id": "s"}, "k", "two", prompt)) is None
    assert known.node(known.keys({"x-session-id": "s"}, "k", "one", prompt)) == "a"
    known.forget("a")
    assert known.node(known.keys({"x-session-id": "s"}, "k", "one", prompt)) is None


async def test_a_conversation_stays_on_its_node(open_stack: Open) -> None:
    nodes = [FakeDecode(tokens=[41] * 3) for _ in range(3)]
    stack = await open_stack(nodes=nodes)

    async def ask(session: str) -> str:
        async with stack.ask(headers={**SPEED, "x-session-id": session}, max_tokens=4) as reply:
            assert reply.status == 200
            return str(reply.headers["x-speedtier-node"])

    # Three at once take three nodes, and each stays on its own from then on.
    homes = dict(zip("abc", await asyncio.gather(*(ask(name) for name in "abc")), strict=True))
    assert len(set(homes.values())) == 3
    for name in "cabbacbca":
        assert await ask(name) == homes[name]


async def test_a_node_that_is_taken_does_not_make_a_conversation_wait(open_stack: Open) -> None:
    nodes = [FakeDecode(tokens=[41] * 100, pace_s=0.005) for _ in range(2)]
    stack = await open_stack(nodes=nodes)
    headers = {**SPEED, "x-session-id": "s"}

    async def ask() -> str:
        async with stack.ask(headers=headers, max_tokens=50) as reply:
            await reply.read()
            return str(reply.headers["x-speedtier-node"])

    assert len(set(await asyncio.gather(ask(), ask()))) == 2
