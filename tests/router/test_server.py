"""The router as a process: it serves, logs, and ends when told to."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from router import DecodeNodeConfig, RouterConfig, Timeouts
from router.fake import FakeDecode, FakePrefill, serving
from tests.router.stack import CHAT, SPEED, until

RUN = """
import sys, msgspec, router
router.serve(msgspec.json.decode(sys.argv[1], type=router.RouterConfig))
"""


@asynccontextmanager
async def process(config: RouterConfig, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as out:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUN, msgspec.json.encode(config).decode(), stderr=out
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_logs_and_lets_open_requests_finish(
    model_dir: Path, tmp_path: Path, unused_tcp_port: int, number: int
) -> None:
    node, log = FakeDecode(tokens=[41] * 40, pace_s=0.01), tmp_path / "log"
    async with serving(FakePrefill(model_dir).app()) as vllm, serving(node.app()) as decode:
        nodes = (DecodeNodeConfig(url=decode),)
        config = RouterConfig(port=unused_tcp_port, prefill=(vllm,), decode=nodes)
        async with process(config, log) as router, aiohttp.ClientSession() as session:
            await until(lambda: "router serves on" in log.read_text(), 20)
            body = {"model": "tiny", "messages": [{"role": "user", "content": "fox"}], "max_tokens": 41}
            asking = session.post(f"http://127.0.0.1:{unused_tcp_port}{CHAT}", json=body, headers=SPEED)
            async with asyncio.TaskGroup() as tasks:
                reply = tasks.create_task(_read(asking))
                await until(lambda: node.active)
                assert router.pid != os.getpid()
                router.send_signal(number)
            assert reply.result()["usage"]["completion_tokens"] == 41
            assert await asyncio.wait_for(router.wait(), 10) == 0
    lines = log.read_text().splitlines()
    assert json.loads(lines[1])["completion_tokens"] == 41 and lines[-1] == "router has ended"


async def _read(asking: "aiohttp.client._RequestContextManager") -> dict[str, dict[str, int]]:
    async with asking as reply:
        return dict(await reply.json())


async def test_it_ends_in_time_when_a_request_does_not(model_dir: Path, tmp_path: Path, unused_tcp_port: int) -> None:
    node, log = FakeDecode(fault="mute"), tmp_path / "log"
    async with serving(FakePrefill(model_dir).app()) as vllm, serving(node.app()) as decode:
        timeouts = Timeouts(shutdown=0.2)
        nodes = (DecodeNodeConfig(url=decode),)
        config = RouterConfig(port=unused_tcp_port, prefill=(vllm,), decode=nodes, timeouts=timeouts)
        async with process(config, log) as router, aiohttp.ClientSession() as session:
            await until(lambda: "router serves on" in log.read_text(), 20)
            body = {"model": "tiny", "messages": [{"role": "user", "content": "fox"}], "stream": True}
            async with session.post(f"http://127.0.0.1:{unused_tcp_port}{CHAT}", json=body, headers=SPEED) as reply:
                await until(lambda: node.active)
                router.terminate()
                with pytest.raises(aiohttp.ClientPayloadError):
                    await reply.read()
            assert await asyncio.wait_for(router.wait(), 10) == 0
        await until(lambda: node.hung_up and node.cancelled)


def test_the_defaults_make_a_config_and_unknown_names_are_refused() -> None:
    config = msgspec.json.decode(msgspec.json.encode(RouterConfig()), type=RouterConfig)
    assert config == RouterConfig()
    for wrong in ({"prot": 1}, {"decode": [{"url": "ftp://x"}]}, {"queue_limit": -1}, {"timeouts": {"render": 0}}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, RouterConfig)
