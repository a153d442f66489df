"""Run a decode node until it is told to end."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator

from aiohttp import web
from rich.console import Console
from rich.progress import Progress

from persistent_engine.server.app import build_app
from persistent_engine.server.config import DecodeConfig
from persistent_engine.server.node import DecodeNode, open_node
from speedtier.errors import ConfigError
from speedtier.junk import shorten_junk

__all__ = ["serve", "serving"]

log = logging.getLogger("speedtier.decode")


@contextlib.asynccontextmanager
async def serving(node: DecodeNode) -> AsyncIterator[int]:
    """Start `node`, serve it, give the HTTP port; leave both stopped. Raises: ConfigError when the port is taken."""
    shorten_junk()
    await node.start()
    runner = web.AppRunner(build_app(node), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    try:
        await runner.setup()
        site = web.TCPSite(runner, node.config.host, node.config.port)
        try:
            await site.start()
        except OSError as error:
            address = f"{node.config.host}:{node.config.port}"
            raise ConfigError(f"port is {node.config.port}: cannot listen on {address} ({error})") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
        await node.close()


def _open(config: DecodeConfig) -> DecodeNode:
    console = Console(stderr=True)
    if not console.is_terminal:
        return open_node(config)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("loading weights")
        return open_node(config, lambda done, total: bar.update(task, completed=done, total=total))


async def _run(config: DecodeConfig) -> None:
    node = _open(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    log.info("compiling kernels (kept for the next start) and making the workers resident")
    async with serving(node) as port:
        log.info(
            "decode node ready: %s on http://%s:%d, handoff ports %d (control) and %d (data), %d slots of %d tokens",
            node.facts.architecture,
            config.host,
            port,
            node.receiver.ctrl_port,
            node.receiver.data_port,
            config.slots,
            node.capacity,
        )
        await stop.wait()
        log.info("ending")


def serve(config: DecodeConfig) -> None:
    """Run until SIGINT or SIGTERM. Raises: SpeedtierError when it cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(_run(config))
