"""The only door to pip: a Protocol and the pip of a virtual environment.

Invariant: every call names the environment's own interpreter, so nothing outside it changes.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from deploy.setup.errors import SetupError

__all__ = ["Pip", "VenvPip"]


class Pip(Protocol):
    """What set-up asks of an environment."""

    def install(self, arguments: Sequence[str], index: str | None = None) -> bool:
        """Install requirements (pip's own arguments), with `index` searched too; False when pip refuses."""

    def uninstall(self, names: Sequence[str]) -> None:
        """Remove distributions that are there; raises `SetupError` when pip refuses."""

    def version(self, name: str) -> str | None:
        """Version of an installed distribution, local part included, or None."""

    def complaint(self, module: str) -> str | None:
        """Last line of what `import module` says in a fresh interpreter, or None when it works."""


class VenvPip:
    """`Pip` for the environment at `root`."""

    def __init__(self, root: Path) -> None:
        self.python = root / "bin" / "python"

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.python), *arguments]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)

    def _pip(self, verb: str, *arguments: str) -> bool:
        quiet = () if sys.stdout.isatty() else ("--quiet", "--progress-bar=off")
        flags = ("--no-input", "--disable-pip-version-check", *(quiet if verb == "install" else ("--yes", "--quiet")))
        command = [str(self.python), "-m", "pip", verb, *flags, *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0

    def install(self, arguments: Sequence[str], index: str | None = None) -> bool:
        return self._pip("install", *(("--extra-index-url", index) if index else ()), *arguments)

    def uninstall(self, names: Sequence[str]) -> None:
        if not self._pip("uninstall", *names):
            raise SetupError(f"pip could not uninstall {', '.join(names)}; remove .venv and run `make setup` again")

    def version(self, name: str) -> str | None:
        done = self._run("-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))", name)
        return done.stdout.strip() if done.returncode == 0 else None

    def complaint(self, module: str) -> str | None:
        done = self._run("-c", f"import {module}")
        if done.returncode == 0:
            return None
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit status {done.returncode}"
