"""Where the native copy's machine code is kept."""

import os
import subprocess
import sys
from pathlib import Path

LOAD = """
import sys
import numba
numba.config.CACHE_DIR = sys.argv[1]
from tilert_connector.copy_kernel import move
assert numba.config.CACHE_DIR == sys.argv[1]
print(sum(move.stats.cache_hits.values()))
"""


def hits(place: Path) -> int:
    """Of numba's cache, in a process that keeps its own kernels there."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", LOAD, str(place)]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout)


def test_the_second_process_loads_what_the_first_compiled_wherever_they_keep_their_own(tmp_path: Path) -> None:
    """A prefill node must not stand still for two seconds in its first handoff."""
    hits(tmp_path / "decode")
    assert hits(tmp_path / "prefill") == 1
    assert not any(tmp_path.iterdir())
