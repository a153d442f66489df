"""Machine code compiled from other sources is never found."""

import shutil
from pathlib import Path

import pytest

import persistent_engine
from persistent_engine.runtime.cpu.jit import cache_directory

PACKAGE = Path(persistent_engine.__file__).parent


@pytest.mark.parametrize(
    "source", ["runtime/cpu/kernels/arithmetic.py", "runtime/cpu/control.py", "manifest/linear.py", "plan/records.py"]
)
def test_a_change_in_any_source_moves_the_cache(tmp_path: Path, source: str) -> None:
    copy = tmp_path / "engine"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert cache_directory(copy) == cache_directory(PACKAGE)
    with (copy / source).open("a") as file:
        file.write("# changed\n")
    assert cache_directory(copy) != cache_directory(PACKAGE)
