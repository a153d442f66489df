"""Finds Mooncake: importing this module is trying it, and fails as `import mooncake.engine` does.

`make setup` puts shared libraries that the system lacks into the environment; they are loaded first.
"""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
for _name in ("libnl-3.so.200", "libnl-route-3.so.200", "libibverbs.so.1"):
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(Path(sys.prefix) / "lib" / "speedtier" / _name), mode=ctypes.RTLD_GLOBAL)

from mooncake.engine import TransferEngine  # noqa: E402

__all__ = ["TransferEngine"]
