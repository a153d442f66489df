"""`speedtier nodes` against a real router between fakes."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from router import DecodeNodeConfig, RouterConfig, running
from router.fake import FakeDecode, serving


class Operator:
    """Types commands at a router."""

    def __init__(self, router: str, key_file: Path, nodes: list[str]) -> None:
        self.router, self.key_file, self.nodes = router, key_file, nodes

    async def type(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "deploy.cli", "nodes", *words]
        command += ["--router", self.router, "--key-file", str(self.key_file)]
        environment = {"COLUMNS": "200", "PATH": ""}
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, env=environment
        )


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    file = tmp_path / "admin.key"
    file.write_text("admin-secret-of-some-length\n")
    async with serving(FakeDecode().app()) as one, serving(FakeDecode().app()) as two:
        config = RouterConfig(port=0, decode=(DecodeNodeConfig(url=one),), admin_key_file=str(file))
        async with running(config) as url:
            yield Operator(url, file, [one, two])


async def test_servers_are_listed_added_drained_resumed_and_removed(operator: Operator) -> None:
    one, two = (url.removeprefix("http://") for url in operator.nodes)
    done = await operator.type("add", "--kind", "decode", "--url", operator.nodes[1])
    assert (done.returncode, done.stdout.split(":")[0]) == (0, f"added decode {two.split(':')[0]}"), done.stderr
    head, *rows = (line.split("\t") for line in (await operator.type("list")).stdout.splitlines())
    assert head[:3] == ["kind", "name", "state"] and [row[:2] for row in rows] == [["decode", one], ["decode", two]]
    assert (await operator.type("drain", "--name", one)).stdout == f"drained decode {one}: draining, 0 in flight\n"
    assert "resumed" in (await operator.type("resume", "--name", operator.nodes[0])).stdout
    assert (await operator.type("remove", "--name", one, "--kind", "decode")).stdout == f"removed decode {one}\n"
    assert one not in (await operator.type("list")).stdout


async def test_what_goes_wrong_is_one_line_with_the_way_out(operator: Operator, tmp_path: Path) -> None:
    done = await operator.type("drain", "--name", "h:1")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no server is called 'h:1'" in done.stderr
    operator.key_file.write_text("another-key-of-some-length")
    done = await operator.type("list")
    assert done.returncode == 1 and "admin_key_file" in done.stderr and "another-key" not in done.stderr
    operator.key_file = tmp_path / "absent"
    done = await operator.type("list")
    assert done.returncode == 2 and "speedtier keys --admin" in done.stderr
    operator.key_file.write_text("x")
    operator.router = "http://127.0.0.1:9"
    done = await operator.type("list")
    assert done.returncode == 1 and "does not answer" in done.stderr
