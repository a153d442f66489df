"""Checkpoints built once and kept.

Invariant: what `ensure` returns was built by the code that stands now; of two processes that ask, one builds.
"""

import fcntl
import hashlib
from pathlib import Path

from deploy.checkpoints.build import build, check
from deploy.checkpoints.place import cache_root

__all__ = ["ensure"]


def _recipe() -> str:
    """Digest of this package's source: a changed builder makes kept checkpoints stale."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def ensure(name: str, dtype: str = "float32", root: Path | None = None) -> Path:
    """Directory of checkpoint `name` under `root` (default `.cache/checkpoints`); built when missing or
    stale.

    Raises `CheckpointError` when the name or dtype is unknown.
    """
    check(name, dtype)
    home = root if root is not None else cache_root() / "checkpoints"
    home.mkdir(parents=True, exist_ok=True)
    directory = home / (name if dtype == "float32" else f"{name}-{dtype}")
    stamp, recipe = home / f".{directory.name}.recipe", _recipe()
    with open(home / f".{directory.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir() or not stamp.is_file() or stamp.read_text() != recipe:
            stamp.unlink(missing_ok=True)
            build(name, directory, dtype)
            stamp.write_text(recipe)
    return directory
