"""The only door to the system's package archive: unpacks shared libraries into the environment, without root.

Invariant: nothing is installed; apt's own lists are used, or fresh ones in a directory that is thrown away.
"""

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from deploy.setup.fake import FakePip

__all__ = ["AptLibraries", "FakeLibraries", "Libraries"]


class Libraries(Protocol):
    """What set-up asks of the archive."""

    def fetch(self, packages: Sequence[str]) -> bool:
        """Put the shared libraries of these packages into the environment; False if they cannot be had."""


class FakeLibraries:
    """`there`: whether it has what it is asked for. `mends`: a pip and the module that imports then. `fetched`: what
    was asked for."""

    def __init__(self, there: bool = True, mends: tuple[FakePip, str] | None = None) -> None:
        self.there = there
        self.mends = mends
        self.fetched: list[str] = []

    def fetch(self, packages: Sequence[str]) -> bool:
        self.fetched.extend(packages)
        if self.there and self.mends is not None:
            pip, module = self.mends
            pip.broken.remove(module)
        return self.there


class AptLibraries:
    """Into `root`/lib/speedtier, where `tilert_connector.transport.mooncake_library` looks."""

    def __init__(self, root: Path) -> None:
        self._target = root / "lib" / "speedtier"

    def fetch(self, packages: Sequence[str]) -> bool:
        if platform.system() != "Linux" or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            return False
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            options = self._own_lists(work)
            for more in ((), options):
                if more and not self._run(work, "apt-get", *more, "update"):
                    return False
                if self._run(work, "apt-get", *more, "download", *packages):
                    return self._unpack(work)
        return False

    def _own_lists(self, work: Path) -> tuple[str, ...]:
        for part in ("lists/partial", "cache/archives/partial"):
            (work / part).mkdir(parents=True)
        settings = (f"Dir::State::lists={work}/lists", f"Dir::Cache={work}/cache", "APT::Sandbox::User=root")
        return tuple(word for setting in settings for word in ("-o", setting))

    def _unpack(self, work: Path) -> bool:
        self._target.mkdir(parents=True, exist_ok=True)
        for package in work.glob("*.deb"):
            if not self._run(work, "dpkg-deb", "-x", str(package), str(work / "tree")):
                return False
        found = [file for file in (work / "tree").rglob("*.so.*") if file.parent.parent.name == "lib"]
        for file in found:
            shutil.copy(file, self._target / file.name)  # follows links: each name becomes a file
        return bool(found)

    def _run(self, work: Path, *command: str) -> bool:
        try:
            return subprocess.run(command, cwd=work, capture_output=True, timeout=120).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
