"""The real edges of set-up: the shell that finds a Python, the environment's pip, the stamp."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.setup import VenvPip
from deploy.setup.stamp import Stamp
from deploy.setup.venv import ready, usable

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / "deploy" / "setup" / "run.sh"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def find(tools: Path, python: str) -> "subprocess.CompletedProcess[str]":
    tools.mkdir(exist_ok=True)
    for tool in ("sh", "dirname"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    environment = {"PATH": str(tools), "PYTHON": python}
    return subprocess.run([str(RUN)], env=environment, capture_output=True, text=True, timeout=60)


def test_without_any_python_the_message_says_what_is_needed(tmp_path: Path) -> None:
    done = find(tmp_path / "bin", "")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr and "make setup PYTHON=" in done.stderr


def test_an_old_python_is_named_as_too_old(tmp_path: Path) -> None:
    old = script(tmp_path / "old", 'case "$2" in *print*) echo 3.9;; *) exit 1;; esac\n')
    done = find(tmp_path / "bin", str(old))
    assert done.returncode == 1
    assert f"{old} is 3.9: too old" in done.stderr


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    bare = script(tmp_path / "bare", 'case "$2" in *print*) echo 3.12;; *ensurepip*) exit 1;; esac\n')
    done = find(tmp_path / "bin", str(bare))
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


def test_the_first_python_that_can_is_handed_the_set_up(tmp_path: Path) -> None:
    good = script(tmp_path / "good", f'echo "$@" >> {tmp_path}/calls\ncase "$2" in *print*) echo 3.12;; esac\n')
    assert find(tmp_path / "bin", f"/nonexistent/python {good}").returncode == 0
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "-m deploy.setup"


def test_pip_is_called_in_the_environment_with_the_index(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python", f'echo "$@" >> {tmp_path}/calls\n')
    assert VenvPip(tmp_path).install(["torch==1+cpu"], "https://wheels.example")
    call = (tmp_path / "calls").read_text()
    assert call.startswith("-m pip install") and call.endswith(
        "--extra-index-url https://wheels.example torch==1+cpu\n"
    )


def test_versions_and_imports_are_asked_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    pip = VenvPip(tmp_path)
    assert pip.version("no-such-distribution") is None
    assert pip.complaint("json") is None
    assert "no_such_module" in (pip.complaint("no_such_module") or "")


@pytest.mark.slow
def test_a_broken_environment_is_made_anew_and_a_good_one_kept(tmp_path: Path) -> None:
    venv, said = tmp_path / ".venv", []
    script(venv / "bin" / "python", "exit 1\n")
    assert not usable(venv)
    ready(venv, said.append)
    assert usable(venv) and "does not work" in said[0]
    ready(venv, said.append)
    assert len(said) == 1


def test_the_stamp_follows_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("a = 1\n")
    stamp = Stamp(tmp_path, tmp_path, "vllm==1")
    assert not stamp.fresh()
    stamp.write()
    assert Stamp(tmp_path, tmp_path, "vllm==1").fresh()
    assert not Stamp(tmp_path, tmp_path, "vllm==2").fresh()
    (tmp_path / "pyproject.toml").write_text("a = 2\n")
    assert not Stamp(tmp_path, tmp_path, "vllm==1").fresh()
    stamp.clear()
    assert not stamp.fresh()


def test_an_unknown_device_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.setup"],
        env=os.environ | {"SPEEDTIER_DEVICE": "abacus"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "SPEEDTIER_DEVICE='abacus'" in done.stderr
