"""The status page in a real browser (R10). ``SPEEDTIER_PICTURE=docs/status.png`` keeps the picture of the docs."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from router import TrafficClass
from router.fake import FakeDecode, FakePrefill
from tests.router.stack import Open, Stack
from tests.router.status.chrome import Page, found, page

pytestmark = [pytest.mark.contract("R10"), pytest.mark.slow]
CLASSES = (
    TrafficClass(name="agents", pool="speed", weight=3.0),
    TrafficClass(name="chat", pool="speed", fallback="none"),
    TrafficClass(name="bulk", pool="native"),
)
KEY = "admin-secret-of-some-length"
NUMBERS = "[...document.querySelectorAll('#requests tr')].map(row => Number(row.cells[4].textContent) || 0)"
CONTRAST = """(() => {
  const probe = document.createElement("span"), style = getComputedStyle(document.documentElement);
  document.body.append(probe);
  const light = name => {
    probe.style.color = style.getPropertyValue(name);
    return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number)
      .map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const inks = ["--ink", "--quiet", "--accent", "--up", "--down", "--wait"];
  const worst = Math.min(...inks.flatMap(ink => ["--panel", "--ground"].map(on => ratio(light(ink), light(on)))));
  probe.remove();
  return worst;
})()"""

Look = Callable[[], Awaitable[Page]]


@pytest.fixture
async def look() -> AsyncIterator[Look]:
    browser = await asyncio.to_thread(found)
    if browser is None:
        pytest.skip("no browser: the status page was not looked at; run `make setup`, or name one in SPEEDTIER_BROWSER")
    async with contextlib.AsyncExitStack() as exits:

        async def open_page() -> Page:
            return await exits.enter_async_context(page(browser))

        yield open_page


@contextlib.asynccontextmanager
async def busy(open_stack: Open, model_dir: Path, **settings: Any) -> AsyncIterator[Stack]:
    """Two nodes that stream, a queue, and an error that has been."""
    nodes = [FakeDecode(tokens=[41] * 100_000, slots=2, pace_s=pace, max_tokens=200_000) for pace in (0.002, 0.006)]
    server = FakePrefill(model_dir, max_model_len=200_000, generate_fault="crash")
    stack = await open_stack(server, nodes=nodes, classes=CLASSES, default_class="bulk", **settings)
    async with stack.ask(headers={"x-traffic-class": "chat"}) as reply:
        assert reply.status == 502
    server.generate_fault = ""

    async def stream(name: str) -> None:
        async with stack.ask(headers={"x-traffic-class": name}, stream=True, max_tokens=90_000) as reply:
            async for _ in reply.content.iter_any():
                pass

    asking = [asyncio.create_task(stream(name)) for name in ("agents", "chat", "agents", "chat", "agents")]
    try:
        yield stack
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_live_numbers_in_both_schemes_and_nothing_else(open_stack: Open, model_dir: Path, look: Look) -> None:
    async with busy(open_stack, model_dir) as stack:
        seen = await look()
        await seen.show(stack.url + "/")
        await seen.until("Number(document.querySelector('#rate').textContent.replace(',', '')) > 0")
        await seen.until("document.querySelectorAll('#requests tr').length === 5")
        before = await seen.value(NUMBERS)
        await seen.until(f"({NUMBERS}).reduce((a, b) => a + b) > {sum(before) + 20}")
        assert await seen.value("document.querySelector('#waiting').textContent") == "1"
        assert await seen.value("document.querySelector('#errors td:nth-child(2)').textContent") == "PeerBroken"
        states = await seen.value("[...document.querySelectorAll('#nodes .state')].map(cell => cell.textContent)")
        assert len(states) == 4 and set(states) <= {"up", "down"}
        assert await seen.value("document.querySelector('#curve polyline').getAttribute('points').length > 3")
        await asyncio.sleep(float(os.environ.get("SPEEDTIER_PICTURE") is not None) * 20)
        pictures = {}
        for scheme in ("dark", "light"):
            pictures[scheme] = await seen.picture(1100, 900, scheme)
            assert await seen.value(CONTRAST) >= 4.5, f"text of the {scheme} scheme is hard to read"
        assert len(set(pictures.values())) == 2 and min(map(len, pictures.values())) > 20_000
        if file := os.environ.get("SPEEDTIER_PICTURE"):
            Path(file).write_bytes(pictures["light"])
        assert seen.complaints == []
        assert {each.removeprefix(stack.url) for each in seen.requests} - {"data:,"} == {"/", "/status.json"}


async def test_it_fits_a_phone_and_can_be_read_aloud(open_stack: Open, look: Look) -> None:
    stack = await open_stack()
    seen = await look()
    await seen.show(stack.url + "/")
    await seen.until("!document.querySelector('#data').hidden")
    await seen.picture(360, 700, "light")
    assert await seen.value("document.documentElement.scrollWidth <= 360")
    tree = (await seen.call("Accessibility.getFullAXTree"))["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if "role" in node}
    for table in ("Servers", "Traffic classes", "Requests now", "Last errors"):
        assert ("table", table) in names
    assert ("columnheader", "Tokens/s") in names
    assert any(role == "image" and "last two minutes" in name for role, name in names)


async def test_it_asks_for_a_key_where_there_is_one(open_stack: Open, tmp_path: Path, look: Look) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    stack = await open_stack(admin_key_file=str(file))
    seen = await look()
    await seen.show(stack.url + "/")
    await seen.until("!document.querySelector('#ask').hidden")
    assert await seen.value("document.querySelector('#data').hidden")
    for key, then in (
        ("wrong", "document.querySelector('#trouble').textContent.includes('does not know')"),
        (KEY, "1"),
    ):
        fill = f"document.querySelector('#key').value = {key!r}; document.querySelector('#ask button').click()"
        await seen.value(fill)
        await seen.until(f"!document.querySelector('#key').value && {then}")
    await seen.until("document.querySelectorAll('#nodes tr').length === 3 && document.querySelector('#ask').hidden")
    assert not [address for address in seen.requests if KEY in address]
