"""How kernels are compiled, and where the machine code is kept.

numba keeps compiled code beside a source file and renews it when that file changes, but not when a function that it
inlined from another file does. So the cache lies in a folder named after all the sources that end up in it: code from
other sources is never found.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

__all__ = ["FAST", "cache_directory", "fast_kernel", "kernel"]

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered by the compiler (once, at compilation); infinities and NaN keep their meaning."""


def _sources(engine: Path) -> list[Path]:
    return sorted([*engine.glob("runtime/cpu/**/*.py"), *engine.glob("manifest/*.py"), engine / "plan" / "records.py"])


def cache_directory(engine: Path) -> Path:
    """Where code compiled from the sources of the package at `engine` is kept."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in _sources(engine):
        digest.update(path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "speedtier" / "kernels" / digest.hexdigest()[:16]


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(cache_directory(Path(__file__).parents[2]))

kernel: Callable[..., Any] = numba.njit(nogil=True, cache=True)
"""Compile without the GIL, with exact float rules."""

fast_kernel: Callable[..., Any] = numba.njit(nogil=True, cache=True, fastmath=FAST)
"""Compile without the GIL; the compiler may choose the order of sums."""
