"""The router as a process.

Invariant: it ends on SIGINT or SIGTERM within the shutdown timeout and leaves no request half told: open ones
may finish until then.
"""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from router.app import build_app
from router.config import RouterConfig
from speedtier.errors import ConfigError
from speedtier.junk import shorten_junk

__all__ = ["running", "serve"]

_LOG = logging.getLogger("router")
LINGER_S = 5.0
"""How long a client that was refused may go on sending, so that it reads why."""


@asynccontextmanager
async def running(config: RouterConfig) -> AsyncIterator[str]:
    """A router that serves inside this event loop; gives its base URL."""
    shorten_junk()
    runner = web.AppRunner(
        build_app(config),
        access_log=None,
        handler_cancellation=True,  # a client that leaves cancels its request (R5)
        keepalive_timeout=config.timeouts.receive,  # also for a first request whose headers do not end
        lingering_time=min(config.timeouts.receive, LINGER_S),
        shutdown_timeout=config.timeouts.shutdown,
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise ConfigError(
                f"port = {config.port}: cannot listen on {config.host}:{config.port} ({error.strerror}); take another"
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _serve(config: RouterConfig) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    async with running(config) as url:
        gc.collect()
        gc.freeze()  # what is here stays; looking through it again takes 0.3 s where vLLM's parsers are loaded
        _LOG.info("router serves on %s", url)
        await end.wait()
    _LOG.info("router has ended")


def serve(config: RouterConfig) -> None:
    """Serve until SIGINT or SIGTERM. Log lines, one JSON object for each request among them, go to standard
    error.

    Raises:
        ConfigError: the configuration contradicts itself, or the address cannot be listened on.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # a fifth less CPU per token where it is installed
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
