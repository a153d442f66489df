"""Which HTTP stack relays streamed events with the least CPU: the measurement behind the router's choice.

Each candidate runs as one relay process between a paced source and one client process. The figure is events
relayed per second of the relay's own CPU time, so what source and client burn does not count. Events are
paced so that each is read and written alone, as tokens are.

Run: ``python benchmarks/http_stack.py [--streams 16] [--rate 200] [--events 400]``
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
from aiohttp import web

EVENT = b'data: {"id":"chatcmpl-0","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def serve_aiohttp(app: web.Application, port: int) -> None:
    """Run an aiohttp application until the process is ended."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def source(port: int, rate: float, events: int) -> None:
    """The upstream: each reply is ``events`` events at ``rate`` per second."""

    async def stream(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        start = time.monotonic()
        for number in range(events):
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            await reply.write(EVENT)
        return reply

    app = web.Application()
    app.router.add_post("/", stream)
    asyncio.run(serve_aiohttp(app, port))


def relay_aiohttp(port: int, upstream: str) -> None:
    """aiohttp on both sides."""
    app = web.Application()

    async def open_session(_: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as app["session"]:
            yield

    async def relay(request: web.Request) -> web.StreamResponse:
        async with request.app["session"].post(upstream, data=await request.read()) as reply:
            out = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await out.prepare(request)
            async for chunk in reply.content.iter_any():
                await out.write(chunk)
        return out

    app.cleanup_ctx.append(open_session)
    app.router.add_post("/", relay)
    asyncio.run(serve_aiohttp(app, port))


def relay_aiohttp_uvloop(port: int, upstream: str) -> None:
    """aiohttp on both sides, on uvloop."""
    import uvloop

    uvloop.install()
    relay_aiohttp(port, upstream)


def relay_starlette(port: int, upstream: str, client: str) -> None:
    """Starlette under uvicorn (uvloop and httptools), with httpx or aiohttp towards the source."""
    import httpx
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    held: dict[str, Any] = {}

    async def body(sent: bytes) -> AsyncIterator[bytes]:
        if client == "httpx":
            if not held:
                held["c"] = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=None)
            async with held["c"].stream("POST", upstream, content=sent) as reply:
                async for chunk in reply.aiter_raw():
                    yield chunk
        else:
            if not held:
                held["c"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            async with held["c"].post(upstream, data=sent) as reply:
                async for chunk in reply.content.iter_any():
                    yield chunk

    async def relay(request: Request) -> StreamingResponse:
        return StreamingResponse(body(await request.body()), media_type="text/event-stream")

    app = Starlette(routes=[Route("/", relay, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", loop="uvloop", http="httptools")


def relay_starlette_httpx(port: int, upstream: str) -> None:
    """Starlette and httpx."""
    relay_starlette(port, upstream, "httpx")


def relay_starlette_aiohttp(port: int, upstream: str) -> None:
    """Starlette and the aiohttp client."""
    relay_starlette(port, upstream, "aiohttp")


def drive(port: int, streams: int, out: Connection) -> None:
    """The client: ``streams`` replies at once; reports how many events came."""

    async def one(session: aiohttp.ClientSession) -> int:
        async with session.post(f"http://127.0.0.1:{port}/", data=b"{}") as reply:
            return (await reply.read()).count(b"data:")

    async def all_streams() -> int:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return sum(await asyncio.gather(*(one(session) for _ in range(streams))))

    out.send(asyncio.run(all_streams()))


def cpu_seconds(pid: int) -> float:
    """User and system CPU time of a process so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(relay: Callable[[int, str], None], upstream_port: int, streams: int) -> dict[str, float]:
    """Start one relay, drive it (once to warm up), and count."""
    spawn = multiprocessing.get_context("spawn")
    port = free_port()
    process = spawn.Process(target=relay, args=(port, f"http://127.0.0.1:{upstream_port}/"), daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        events, used = 0, 0.0
        for _ in range(2):
            receive, send = spawn.Pipe(duplex=False)
            assert process.pid is not None
            before = cpu_seconds(process.pid)
            client = spawn.Process(target=drive, args=(port, streams, send), daemon=True)
            client.start()
            events = receive.recv()
            client.join(10)
            used = cpu_seconds(process.pid) - before
        return {"events_per_cpu_s": events / used, "cpu_us_per_event": used / events * 1e6}
    finally:
        process.terminate()
        process.join(5)


def main() -> None:
    """Print one line per stack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--events", type=int, default=400)
    args = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    upstream_port = free_port()
    upstream = spawn.Process(target=source, args=(upstream_port, args.rate, args.events), daemon=True)
    upstream.start()
    try:
        for relay in (relay_aiohttp, relay_aiohttp_uvloop, relay_starlette_aiohttp, relay_starlette_httpx):
            figures = measure(relay, upstream_port, args.streams)
            print(json.dumps({"stack": relay.__name__.removeprefix("relay_"), **figures}), flush=True)
    finally:
        upstream.terminate()


if __name__ == "__main__":
    main()
