"""Processes start together, serve, and leave nothing behind, however the launcher ends."""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rich.console import Console

from deploy.processes import Part, PartFailed, Stack, free_ports

SERVER = Path(__file__).with_name("server.py")


def part(directory: Path, name: str, *flags: str, **settings: float) -> Part:
    port = free_ports(1)[0]
    pids = directory / f"{name}.pids"
    command = (sys.executable, str(SERVER), f"--port={port}", f"--pids={pids}", *flags)
    return Part(name=name, command=command, health=f"http://127.0.0.1:{port}/health", **settings)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(directory: Path) -> list[int]:
    return [int(pid) for file in directory.glob("*.pids") for pid in file.read_text().split()]


def gone(processes: list[int], within_s: float = 15.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(alive(process) for process in processes):
            return True
        time.sleep(0.05)
    return False


def quiet() -> Console:
    return Console(file=io.StringIO())


async def test_parts_serve_and_are_gone_with_their_helpers_after_the_block(tmp_path: Path) -> None:
    console = quiet()
    async with Stack(tmp_path, console) as stack:
        await stack.start([part(tmp_path, "one"), part(tmp_path, "two")])
        processes = started(tmp_path)
        assert len(processes) == 4 and all(alive(process) for process in processes)
    assert not any(alive(process) for process in processes)
    assert "one is ready" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "speaking" in (tmp_path / "one.log").read_text()


async def test_a_part_that_dies_while_starting_is_named_with_its_log(tmp_path: Path) -> None:
    async with Stack(tmp_path, quiet()) as stack:
        with pytest.raises(PartFailed, match=r"(?s)bad ended with status 3.*bad\.log.*stand-in speaking"):
            await stack.start([part(tmp_path, "good", "--mute"), part(tmp_path, "bad", "--die=0.2")])
    assert gone(started(tmp_path))


async def test_a_part_that_never_serves_is_given_up(tmp_path: Path) -> None:
    async with Stack(tmp_path, quiet()) as stack:
        with pytest.raises(PartFailed, match="mute did not serve"):
            await stack.start([part(tmp_path, "mute", "--mute", start_timeout_s=0.5)])
    assert gone(started(tmp_path))


async def test_a_death_later_is_noticed(tmp_path: Path) -> None:
    async with Stack(tmp_path, quiet()) as stack:
        await stack.start([part(tmp_path, "one"), part(tmp_path, "two")])
        os.kill(int((tmp_path / "two.pids").read_text().split()[0]), signal.SIGKILL)
        with pytest.raises(PartFailed, match="two ended with status 137"):
            await asyncio.wait_for(stack.died(), 10)
    assert gone(started(tmp_path))


async def test_a_part_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async with Stack(tmp_path, quiet()) as stack:
        await stack.start([part(tmp_path, "stubborn", "--stubborn", grace_s=0.3)])
    assert gone(started(tmp_path))


async def test_a_command_that_does_not_exist_fails_the_start(tmp_path: Path) -> None:
    async with Stack(tmp_path, quiet()) as stack:
        missing = Part(name="missing", command=("/nonexistent/program",), health="http://127.0.0.1:9/")
        with pytest.raises(PartFailed, match=r"(?s)ended with status 127.*No such file"):
            await stack.start([missing])


LAUNCHER = """
    import asyncio, sys
    from pathlib import Path
    from rich.console import Console
    from deploy.processes import Part, Stack, run

    async def work():
        async with Stack(Path(sys.argv[1]), Console()) as stack:
            part = Part(name="one", command=tuple(sys.argv[3:]), health=sys.argv[2])
            await stack.start([part])
            print("SERVING", flush=True)
            await stack.died()

    run(work())
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_to_the_launcher_ends_everything(tmp_path: Path, number: int, status: int) -> None:
    one = part(tmp_path, "one")
    script = tmp_path / "launch.py"
    script.write_text(textwrap.dedent(LAUNCHER))
    command = [sys.executable, str(script), str(tmp_path), one.health, *one.command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        for line in launcher.stdout:
            if "SERVING" in line:
                break
        processes = started(tmp_path)
        assert processes and all(alive(process) for process in processes)
        launcher.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(20)
        assert launcher.returncode == status
    assert gone(processes)


def test_ports_differ_and_are_free() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
