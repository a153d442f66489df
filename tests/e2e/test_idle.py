"""E5 for the whole process: an idle decode node uses under 1 % of a core."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from deploy.checkpoints import ensure
from deploy.processes import Stack, free_ports
from deploy.up.nodes import decode_part
from tests.e2e.serving import QUIET


def _seconds(part: str) -> float:
    """CPU seconds of the one process whose command line names `part`."""
    total, found = 0, 0
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if part.encode() in command and b"guard" not in command:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
                found += 1
        except OSError:
            continue
    assert found == 1
    return total / os.sysconf("SC_CLK_TCK")


@pytest.mark.contract("E5")
@pytest.mark.slow
async def test_an_idle_decode_node_costs_under_one_percent(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    part = decode_part(tmp_path, {"model": str(ensure("tiny-mla")), "port": port, "workers": 2}, {})
    async with Stack(tmp_path, QUIET) as running:
        await running.start([msgspec.structs.replace(part, start_timeout_s=120)])
        await asyncio.sleep(1)
        before, start = _seconds(str(tmp_path / "decode.json")), time.monotonic()
        await asyncio.sleep(6)
        used = (_seconds(str(tmp_path / "decode.json")) - before) / (time.monotonic() - start)
        assert used < 0.01
