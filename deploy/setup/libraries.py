"""Shared libraries of the system, inside the environment.

Invariant: nothing is installed outside it.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from deploy.setup.apt import unpacked
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
        with unpacked(packages) as tree:
            if tree is None:
                return False
            self._target.mkdir(parents=True, exist_ok=True)
            found = [file for file in tree.rglob("*.so.*") if file.parent.parent.name == "lib"]
            for file in found:
                shutil.copy(file, self._target / file.name)  # follows links: each name becomes a file
            return bool(found)
