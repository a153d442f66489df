"""A router between public fakes, and what tests ask of it.

Invariant: every stack that is opened is closed again, and its fakes remember what they were asked.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from tokenizers import Tokenizer

from router import DecodeNodeConfig, RouterConfig, Timeouts, TrafficClass, running
from router.fake import FakeDecode, FakePrefill, serving

SPEED = {"x-traffic-class": "speed"}
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
NO_FALLBACK = (TrafficClass(name="speed", pool="speed", fallback="none"), TrafficClass(name="native", pool="native"))
"""Classes that show an error of the speed tier instead of serving the request natively."""


class Stack:
    """A router, its fakes and a client."""

    def __init__(self, url: str, session: aiohttp.ClientSession, prefill: FakePrefill, nodes: Sequence[FakeDecode]):
        self.url = url
        self.session = session
        self.prefill = prefill
        self.nodes = nodes

    @property
    def decode(self) -> FakeDecode:
        """The first decode node."""
        return self.nodes[0]

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text."""
        return str(Tokenizer.from_file(str(self.prefill.directory / "tokenizer.json")).decode(ids))

    def ids(self, text: str) -> list[int]:
        """Text as token ids."""
        return list(Tokenizer.from_file(str(self.prefill.directory / "tokenizer.json")).encode(text).ids)

    def ask(self, path: str = CHAT, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """A request of the speed class, as an aiohttp context."""
        text = {"messages": [{"role": "user", "content": "the fox"}]} if path == CHAT else {"prompt": "the fox"}
        body = {"model": "tiny", "temperature": 0, **text, **fields}
        return self.session.post(self.url + path, json=body, headers=headers or SPEED)

    async def events(self, path: str = CHAT, **fields: Any) -> list[dict[str, Any]]:
        """Events of a streamed reply, without the end mark, which is checked."""
        async with self.ask(path, stream=True, **fields) as reply:
            assert reply.status == 200, await reply.text()
            *events, done, rest = (await reply.text()).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    async def whole(self, path: str = CHAT, **fields: Any) -> dict[str, Any]:
        """A reply that is not streamed."""
        async with self.ask(path, **fields) as reply:
            assert reply.status == 200, await reply.text()
            return dict(await reply.json())


Open = Callable[..., Awaitable[Stack]]


@asynccontextmanager
async def opener(model_dir: Path) -> AsyncIterator[Open]:
    """Opens stacks: ``await open_stack(server=..., nodes=[...], timeouts={...}, **router_settings)``."""
    async with AsyncExitStack() as exits:

        async def open_stack(
            server: FakePrefill | None = None,
            nodes: Sequence[FakeDecode] | None = None,
            timeouts: dict[str, float] | None = None,
            **settings: Any,
        ) -> Stack:
            server = server or FakePrefill(model_dir)
            nodes = [FakeDecode()] if nodes is None else nodes
            vllm = await exits.enter_async_context(serving(server.app()))
            urls = [await exits.enter_async_context(serving(node.app())) for node in nodes]
            given = {
                "port": 0,
                "prefill": (vllm,),
                "native": (vllm,),
                "decode": tuple(DecodeNodeConfig(url=url) for url in urls),
                "timeouts": Timeouts(**{"shutdown": 0.2, **(timeouts or {})}),
            }
            url = await exits.enter_async_context(running(RouterConfig(**{**given, **settings})))
            session = await exits.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            return Stack(url, session, server, nodes)

        yield open_stack


async def until(condition: Callable[[], object], within_s: float = 15.0) -> None:
    """Wait for a condition; fails when it does not come true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.005)
