"""The only door to the system's package archive: packages as a tree of files, without root and without installing.

Invariant: apt's own lists are used, or fresh ones in a directory that is thrown away.
"""

import contextlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["unpacked"]


@contextlib.contextmanager
def unpacked(packages: Sequence[str], *, whole: bool = False) -> Iterator[Path | None]:
    """The files of `packages` below one directory, which is gone afterwards; None if they cannot be had.

    whole: with what they need and the system lacks.
    """
    if platform.system() != "Linux" or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        yield None
        return
    with tempfile.TemporaryDirectory() as name:
        yield _fetch(Path(name), packages, whole)


def _fetch(work: Path, packages: Sequence[str], whole: bool) -> Path | None:
    for more in ((), _own_lists(work)):
        if more and _run(work, "apt-get", *more, "update") is None:
            return None
        wanted: Sequence[str] | None = packages
        if whole:
            plan = _run(work, "apt-get", *more, "install", "--simulate", "--no-install-recommends", *packages)
            wanted = None if plan is None else [line.split()[1] for line in plan.splitlines() if line[:5] == "Inst "]
        if wanted and _run(work, "apt-get", *more, "download", *wanted) is not None:
            return _unpack(work)
    return None


def _own_lists(work: Path) -> tuple[str, ...]:
    for part in ("lists/partial", "cache/archives/partial"):
        (work / part).mkdir(parents=True)
    settings = (f"Dir::State::lists={work}/lists", f"Dir::Cache={work}/cache", "APT::Sandbox::User=root")
    return tuple(word for setting in settings for word in ("-o", setting))


def _unpack(work: Path) -> Path | None:
    tree = work / "tree"
    for package in work.glob("*.deb"):
        if _run(work, "dpkg-deb", "-x", str(package), str(tree)) is None:
            return None
    return tree


def _run(work: Path, *command: str) -> str | None:
    """What the command printed; None when it failed."""
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=180)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
