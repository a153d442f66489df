"""Where things that we build are kept.

Invariant: a checkout keeps everything under its `.cache`; an installed distribution uses the user's cache.
"""

import os
from pathlib import Path

__all__ = ["cache_root", "checkout"]


def checkout() -> Path | None:
    """Root of the checkout that this file belongs to, or None when it is installed elsewhere."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else None


def cache_root() -> Path:
    """`.cache` of the checkout; else `$XDG_CACHE_HOME/speedtier` or `~/.cache/speedtier`."""
    root = checkout()
    if root is not None:
        return root / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "speedtier"
