"""Files that hold secrets.

Invariant: no secret is taken from a file that others than its owner and group may read, or than its owner may change.
"""

import stat
from pathlib import Path

from speedtier.errors import ConfigError

__all__ = ["check_private"]


def check_private(field: str, path: str) -> Path:
    """The file that `field` of a configuration names. Raises ConfigError if it is not there or not private."""
    file = Path(path)
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        raise ConfigError(f"{field}: {path} cannot be read: {error}") from error
    if mode & 0o027:
        raise ConfigError(f"{field}: {path} has mode {mode:04o}, others may read or change it; chmod 600 {path}")
    return file
