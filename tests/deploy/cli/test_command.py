"""The `speedtier` command as a user meets it."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cli.commands import COMMANDS


def speedtier(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"COLUMNS": "200", "PATH": ""})


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; sys.argv = ['speedtier', '--help']\n"
        "from deploy.cli import main\n"
        "try: main()\n"
        "finally: print([name for name in ('vllm', 'torch', 'numba', 'aiohttp', 'router') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("[]")
    for command in COMMANDS:
        assert f" {command.path[0]} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command.path))
def test_every_command_shows_its_options(command) -> None:  # type: ignore[no-untyped-def]
    done = speedtier(*command.path, "--help")
    assert done.returncode == 0, done.stderr
    assert "--config" in done.stdout and command.help in " ".join(done.stdout.split())


def test_a_value_that_cannot_be_used_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = speedtier("checkpoint", "--name", "tiny-mla", "--dtype", "int3")
    assert done.returncode == 2
    assert done.stderr == "speedtier: command line: dtype = 'int3': take one of float32, bfloat16\n"
    done = speedtier("up", "--config", str(tmp_path / "absent.toml"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cannot be read" in done.stderr


def test_a_checkpoint_is_built_where_one_says(tmp_path: Path) -> None:
    done = speedtier("checkpoint", "--name", "tiny-gqa", "--directory", str(tmp_path / "here"))
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path / "here")
    assert (tmp_path / "here" / "model.safetensors").is_file()


def test_the_version_is_that_of_the_distribution() -> None:
    import speedtier as package

    assert speedtier("--version").stdout.strip() == package.__version__
