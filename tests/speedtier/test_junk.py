"""Junk on an HTTP port costs a line."""

import asyncio
import logging

import pytest
from aiohttp import web

from speedtier.junk import shorten_junk


async def test_junk_on_an_http_port_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    shorten_junk()
    shorten_junk()
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        with caplog.at_level(logging.INFO, "aiohttp.server"):
            writer.write(b"GET / HTTP/1.1\r\nHost: " + b"\xff\0" * 4000 + b"\r\n\r\n")
            assert b" 400 " in await asyncio.wait_for(reader.read(4096), 5)
        writer.close()
        (record,) = caplog.records
        assert record.levelname == "WARNING" and len(caplog.text) < 300 and "\\xff" not in caplog.text
    finally:
        await runner.cleanup()
