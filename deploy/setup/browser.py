"""A headless browser inside the environment, with which tests look at the router's page: optional.

Invariant: a browser that is there is taken; what cannot be had is said and left out.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.setup.apt import unpacked

__all__ = ["Found", "browser", "find"]

PACKAGE = "chromium-headless-shell"
NAMES = (PACKAGE, "chromium", "chromium-browser", "google-chrome")


class Found(NamedTuple):
    """A browser and what its environment needs."""

    executable: Path
    environment: Mapping[str, str]


def _place(venv: Path) -> Path:
    return venv / "lib" / "speedtier-browser"


def find(venv: Path) -> Found | None:
    """The system's browser, `SPEEDTIER_BROWSER`, or the one in the environment; None where there is none that runs."""
    venv = venv.absolute()
    libraries = [str(each) for each in sorted(_place(venv).glob("usr/lib/*-linux-*"))]
    libraries += [f"{each}/pulseaudio" for each in libraries]
    own = _place(venv) / "usr" / "lib" / "chromium" / PACKAGE
    named = [os.environ.get("SPEEDTIER_BROWSER", ""), *NAMES]
    candidates = [Found(Path(path), {}) for name in named if name and (path := shutil.which(name))]
    candidates.append(Found(own, {"LD_LIBRARY_PATH": ":".join(libraries)}))
    return next((each for each in candidates if _runs(each)), None)


def _runs(found: Found) -> bool:
    command = [str(found.executable), "--no-sandbox", "--version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, env=os.environ | found.environment)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def browser(venv: Path, say: Callable[[str], None]) -> None:
    """Put a browser into the environment, unless there is one."""
    if find(venv) is not None:
        return
    say(f"fetching {PACKAGE}, to test the router's page with (about 100 MB)")
    with unpacked([PACKAGE], whole=True) as tree:
        if tree is not None:
            shutil.rmtree(_place(venv), ignore_errors=True)
            shutil.copytree(tree / "usr" / "lib", _place(venv) / "usr" / "lib", symlinks=True)
    if find(venv) is None:
        say("no browser is to be had: the test of the router's page will be skipped; SPEEDTIER_BROWSER can name one")
