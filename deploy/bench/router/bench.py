"""The processes of the measurement, and one measurement of each kind.

Invariant: the router's processor time is the kernel's count for its whole process, over a window in which nothing
begins or ends.
"""

import asyncio
import contextlib
import multiprocessing
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from deploy.bench.router.client import Client, post
from deploy.bench.router.first_token import MARKED
from deploy.bench.router.stub import SLOTS, serve_decode, serve_prefill
from deploy.checkpoints.tokenizer import tokenizer_files, train
from deploy.processes import free_ports
from router import DecodeNodeConfig, RouterConfig, serve
from speedtier.errors import SpeedtierError

__all__ = ["Bench", "Flow"]

START_S = 30.0
FLOOD = 20_000
"""Events of a native stream that is measured unpaced."""


class Flow:
    """What a measurement of streams found. `rate`: tokens a second, all streams together; `cpu_us`: of the router, for
    each token."""

    def __init__(self, tokens: int, seconds: float, cpu_s: float) -> None:
        self.rate = tokens / seconds
        self.cpu_us = cpu_s / tokens * 1e6
        self.busy = cpu_s / seconds


class Bench:
    """Router, prefill server and decode node on ports of this machine; see `running`."""

    def __init__(self, router: int, prefill: int, decode: int, process: BaseProcess) -> None:
        self.router, self.prefill, self._decode = router, prefill, decode
        self._process = process

    @classmethod
    @contextlib.contextmanager
    def running(cls, prompt: int, slots: int = SLOTS, queue_limit: int = 64) -> Iterator["Bench"]:
        """Start everything; end it at the end of the context. `slots`: of the decode node."""
        router, prefill, decode = free_ports(3)
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as exits:
            tokenizer, _ = train()
            tokenizer_files(Path(directory), tokenizer, 1 << 30)
            config = RouterConfig(
                port=router,
                prefill=(f"http://127.0.0.1:{prefill}",),
                native=(f"http://127.0.0.1:{prefill}",),
                decode=(DecodeNodeConfig(url=f"http://127.0.0.1:{decode}"),),
                tokenizer=directory,
                queue_limit=queue_limit,
            )
            log = str(Path(directory) / "router.log")
            _start(exits, serve_prefill, prefill, prompt)
            _start(exits, serve_decode, decode, slots)
            process = _start(exits, _serve_router, config, log)
            _await(f"http://127.0.0.1:{router}/ready?class=speed")
            yield cls(router, prefill, decode, process)

    async def flow(self, streams: int, rate: int, seconds: float) -> Flow:
        """Decode `streams` streams at `rate` tokens a second each."""
        await asyncio.to_thread(_get, f"http://127.0.0.1:{self._decode}/rate/{rate}")
        ask = {"model": "stub", "messages": [{"role": "user", "content": "word"}], "stream": True}
        clients = [await Client.open(self.router) for _ in range(streams)]
        try:
            for client in clients:
                client.ask(post("/v1/chat/completions", ask, **MARKED))
            await asyncio.gather(*(client.began() for client in clients))
            await asyncio.sleep(min(0.3, seconds))
            before, cpu, started = sum(each.events for each in clients), self.cpu_s(), time.perf_counter()
            await asyncio.sleep(seconds)
            tokens = sum(each.events for each in clients) - before
            found = Flow(tokens, time.perf_counter() - started, self.cpu_s() - cpu)
            if any(each.transport.is_closing() for each in clients):
                raise SpeedtierError("a stream of the bench ended while it was measured")
            return found
        finally:
            for client in clients:
                client.close()
            await asyncio.sleep(0.2)  # the slots come back

    async def native(self, port: int, count: int, rate: int) -> float:
        """Events a second of one native stream of `count` events; `rate` 0 is as fast as it goes."""
        ask = {"model": "stub", "messages": [], "stream": True, "max_tokens": count, "metadata": {"rate": str(rate)}}
        client = await Client.open(port)
        try:
            client.ask(post("/v1/chat/completions", ask))
            started = await client.began()
            seconds = await client.ended(60) - started
            if client.events != count + 1:  # and the end mark
                raise SpeedtierError(f"{client.events - 1} of {count} events came")
            return count / seconds
        finally:
            client.close()

    def cpu_s(self) -> float:
        """Processor seconds of the router's process so far, all threads."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _serve_router(config: RouterConfig, log: str) -> None:
    import sys

    sys.stderr = open(log, "w", buffering=1)  # noqa: SIM115  # for the process's life
    serve(config)


def _start(exits: contextlib.ExitStack, run: Callable[..., None], *arguments: object) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=run, args=arguments, daemon=True)
    process.start()

    def end() -> None:
        process.terminate()
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()

    exits.callback(end)
    return process


def _get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return int(reply.status)


def _await(url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            if _get(url) == 200:
                return
        if time.monotonic() > deadline:
            raise SpeedtierError(f"the router of the bench did not answer {url} within {START_S:g} s")
        time.sleep(0.1)
