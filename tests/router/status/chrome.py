"""A headless Chromium, driven over its DevTools protocol.

Invariant: it asks for the page and for what the page asks, knows no network, and is gone at the end.
"""

import asyncio
import base64
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from deploy.setup.browser import Found, find

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--disable-component-update",
    "--disable-sync",
    "--mute-audio",
    "--remote-debugging-port=0",
    "--force-color-profile=srgb",
]
VENV = Path(__file__).resolve().parents[3] / ".venv"
START_S = 60.0


class Page:
    """One page. ``requests``: addresses that it asked for; ``complaints``: errors of its console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            seen = message.json()
            if "id" in seen:
                self._answers.pop(seen["id"]).set_result(seen)
                continue
            given = seen["params"]
            if seen["method"] == "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            elif seen["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(given["exceptionDetails"]))
            elif seen["method"] == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(given["args"]))
            elif seen["method"] == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                self.complaints.append(given["entry"]["text"])

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        """A command of the protocol."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": given})
        seen = await asyncio.wait_for(answer, 30)
        assert "error" not in seen, seen
        return dict(seen["result"])

    async def show(self, url: str) -> None:
        """Go to an address and wait until the page is there."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {url!r} && document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:
        """What an expression of the page's language gives."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, within_s: float = 20.0) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(within_s):
            while not await self.value(expression):
                await asyncio.sleep(0.05)

    async def picture(self, width: int, height: int, scheme: str) -> bytes:
        """A PNG of the page in a colour scheme."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=media)
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def close(self) -> None:
        """Stop reading."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def found() -> Found | None:
    """A browser, or None."""
    return find(VENV)


@contextlib.asynccontextmanager
async def page(browser: Found) -> AsyncIterator[Page]:
    """An empty page; ``show`` fills it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(str(browser.executable), *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | browser.environment,
        )
        try:
            assert process.stderr is not None
            port = await asyncio.wait_for(_port(process.stderr), START_S)
            draining = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
                    address = next(each for each in await reply.json() if each["type"] == "page")
                async with session.ws_connect(address["webSocketDebuggerUrl"], max_msg_size=1 << 26) as socket:
                    opened = Page(socket)
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await opened.call(f"{domain}.enable")
                    yield opened
                    await opened.close()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await draining


async def _port(lines: asyncio.StreamReader) -> int:
    async for line in lines:
        if listening := re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            return int(listening[1])
    raise AssertionError("the browser ended before it listened")
