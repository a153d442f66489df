"""What a client is told when a server behind the router fails, by server, kind and moment (R2, R5, R6)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router import DecodeNodeConfig, RouterConfig, Timeouts, running
from router.fake import FakeDecode, FakePrefill, serving
from router.fake.model import reply_of
from tests.router.stack import COMPLETIONS, NO_FALLBACK, until
from tests.router.wire import Fault, Wire, wired

pytestmark = pytest.mark.contract("R2", "R6")

TIMEOUTS = Timeouts(connect=1.0, render=1.0, prefill=1.5, handoff=1.0, stall=1.0, native=1.5, cancel=0.5, shutdown=0.1)
LONGEST_S = 15.0
"""The sum of the phases that one request may go through here, twice; a hang takes for ever."""
TOKENS = 30
MOMENTS = ("before headers", "before the first token", "after three tokens")
WHOLE, BROKEN, REFUSED, LATE, ANY = "whole", "broken", (502, 503), (504,), "whole or an error"

# What may become of a request of the class that uses the server: its status, or how its stream ends.
EXPECTED: dict[tuple[str, str, Fault], Any] = {
    ("decode", MOMENTS[0], "absent"): REFUSED,
    ("decode", MOMENTS[0], "refusing"): REFUSED,
    ("decode", MOMENTS[0], "black-holed"): LATE,
    ("decode", MOMENTS[0], "restarting"): ANY,
    ("decode", MOMENTS[1], "absent"): BROKEN,
    ("decode", MOMENTS[1], "refusing"): BROKEN,
    ("decode", MOMENTS[1], "black-holed"): BROKEN,
    ("decode", MOMENTS[1], "restarting"): ANY,
    ("decode", MOMENTS[2], "absent"): BROKEN,
    ("decode", MOMENTS[2], "refusing"): BROKEN,
    ("decode", MOMENTS[2], "black-holed"): BROKEN,
    ("decode", MOMENTS[2], "restarting"): ANY,
    ("prefill", MOMENTS[0], "absent"): REFUSED,
    ("prefill", MOMENTS[0], "refusing"): REFUSED,
    ("prefill", MOMENTS[0], "black-holed"): LATE,
    ("prefill", MOMENTS[0], "restarting"): ANY,
    ("prefill", MOMENTS[1], "absent"): REFUSED,
    ("prefill", MOMENTS[1], "refusing"): REFUSED,
    ("prefill", MOMENTS[1], "black-holed"): LATE,
    ("prefill", MOMENTS[1], "restarting"): ANY,
    ("prefill", MOMENTS[2], "absent"): WHOLE,
    ("prefill", MOMENTS[2], "refusing"): WHOLE,
    ("prefill", MOMENTS[2], "black-holed"): WHOLE,
    ("prefill", MOMENTS[2], "restarting"): WHOLE,
    ("native", MOMENTS[0], "absent"): REFUSED,
    ("native", MOMENTS[0], "refusing"): REFUSED,
    ("native", MOMENTS[0], "black-holed"): LATE,
    ("native", MOMENTS[0], "restarting"): ANY,
    ("native", MOMENTS[1], "absent"): BROKEN,  # its headers are out
    ("native", MOMENTS[1], "refusing"): BROKEN,  # its headers are out
    ("native", MOMENTS[1], "black-holed"): BROKEN,  # its headers are out
    ("native", MOMENTS[1], "restarting"): BROKEN,  # its headers are out
    ("native", MOMENTS[2], "absent"): BROKEN,
    ("native", MOMENTS[2], "refusing"): BROKEN,
    ("native", MOMENTS[2], "black-holed"): BROKEN,
    ("native", MOMENTS[2], "restarting"): BROKEN,
} | {(server, moment, "slow"): WHOLE for server in ("decode", "prefill", "native") for moment in MOMENTS}


class Row:
    """A router whose servers are each behind a wire, and what its clients see."""

    def __init__(self, url: str, http: aiohttp.ClientSession, wires: dict[str, Wire], fakes: dict[str, Any]) -> None:
        self.url, self.http, self.wires, self.fakes = url, http, wires, fakes

    async def ask(self, tier: str, seen: "asyncio.Event | None" = None) -> tuple[int, list[int], bool, bool]:
        """Status, token ids, whether the stream ended in an error, whether it was whole. ``seen``: set after three."""
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": TOKENS, "stream": True, "return_token_ids": True}
        body |= {"temperature": 0, "ignore_eos": True}
        ids: list[int] = []
        failed = done = False
        headers = {"x-traffic-class": tier}
        async with self.http.post(self.url + COMPLETIONS, json=body, headers=headers) as reply:
            if reply.status != 200:
                error = (await reply.json())["error"]
                assert error["code"] == reply.status and error["message"]
                return reply.status, [], True, False
            try:
                async for line in reply.content:
                    data = line.strip().removeprefix(b"data: ")
                    if data == b"[DONE]":
                        done = True
                    elif data:
                        event = json.loads(data)
                        failed = failed or "error" in event
                        for choice in event.get("choices", []):
                            ids += choice["token_ids"]
                    if seen is not None and len(ids) >= 3:
                        seen.set()
            except aiohttp.ClientPayloadError:
                failed = True
        return 200, ids, failed, done and not failed


PROMPT = list(range(40, 60))


@asynccontextmanager
async def row(model_dir: Path, **delays: float) -> AsyncIterator[Row]:
    prefill = FakePrefill(model_dir, speaks=True, delay_s=delays.get("prefill", 0.0))
    native = FakePrefill(model_dir, speaks=True, native_pace_s=delays.get("native", 0.002))
    node = FakeDecode(source=prefill, pace_s=0.01)
    async with (
        serving(prefill.app()) as p,
        serving(node.app()) as d,
        serving(native.app()) as n,
        wired(p) as wp,
        wired(d) as wd,
        wired(n) as wn,
    ):
        config = RouterConfig(
            port=0,
            prefill=(wp.url,),
            decode=(DecodeNodeConfig(url=wd.url),),
            native=(wn.url,),
            classes=NO_FALLBACK,
            tokenizer=str(model_dir),
            timeouts=TIMEOUTS,
        )
        async with running(config) as url, aiohttp.ClientSession() as http:
            wires = {"prefill": wp, "decode": wd, "native": wn}
            yield Row(url, http, wires, {"prefill": prefill, "decode": node, "native": native})


async def fail_at(stack: Row, server: str, moment: str, fault: Fault, tier: str) -> tuple[int, list[int], bool, bool]:
    """Ask, and let the server fail at the moment."""
    if moment == MOMENTS[0]:
        await stack.wires[server].fail(fault)
        return await stack.ask(tier)
    seen = asyncio.Event()
    asking = asyncio.create_task(stack.ask(tier, seen))
    if moment == MOMENTS[1]:
        fake = stack.fakes["native" if server == "native" else "prefill"]
        await until(lambda: fake.native_seen if server == "native" else fake.generated)
    else:
        await seen.wait()
    await stack.wires[server].fail(fault)
    stack.fakes["native"].native_pace_s = 0.005
    return await asking


@pytest.mark.parametrize(("server", "moment", "fault"), EXPECTED, ids=lambda each: str(each).replace(" ", "-"))
async def test_cell(model_dir: Path, server: str, moment: str, fault: Fault) -> None:
    tier, other = ("native", "speed") if server == "native" else ("speed", "native")
    # While something fails before the first token, the first token takes a while.
    slow = {"prefill": 0.3, "native": 0.3} if moment == MOMENTS[1] else {"native": 0.02}
    async with row(model_dir, **slow) as stack:
        truth = reply_of(PROMPT, TOKENS)
        assert (await stack.ask("speed"))[1] == truth, "all is well before"
        stack.fakes["prefill"].generated.clear()
        stack.fakes["native"].native_seen.clear()
        stack.fakes["native"].native_pace_s = 0.3 if moment == MOMENTS[1] and server == "native" else 0.005
        start = time.monotonic()
        status, ids, failed, whole = await fail_at(stack, server, moment, fault, tier)
        assert time.monotonic() - start < LONGEST_S
        assert ids == truth[: len(ids)], "no token twice, none missing"
        assert whole == (len(ids) == TOKENS and not failed)
        expected = EXPECTED[server, moment, fault]
        if expected == WHOLE:
            assert whole
        elif expected == BROKEN:
            assert status == 200 and failed and not whole
        elif expected == ANY:
            assert whole or failed
        else:
            assert status in expected
        assert (await stack.ask(other))[3], "the other class is served"
        await until(lambda: not stack.fakes["decode"].active)
