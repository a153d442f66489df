"""Every branch of the plan package and of the checker is taken by some test: measured, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

TESTS = ("tests/persistent_engine/check", "tests/persistent_engine/plan", "tests/mutation/plan/test_mutants.py")
PACKAGES = ("persistent_engine.check", "persistent_engine.plan")


@pytest.mark.slow
def test_every_branch_is_taken(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COVERAGE_FILE": str(tmp_path / "data")}
        environment.pop("SPEEDTIER_SOAK_S", None)
        line = [sys.executable, "-m", *command]
        return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)

    pytest.importorskip("coverage")
    here = Path(__file__).parent.relative_to(ROOT)
    left_out = [f"--ignore={here / name}" for name in ("test_coverage.py", "test_whole.py")]
    options = ("-q", "-p", "no:cacheprovider", *left_out)
    source = f"--source={','.join(PACKAGES)}"
    tests = run("coverage", "run", "--branch", source, "-m", "pytest", *options, *TESTS)
    assert tests.returncode == 0, tests.stdout[-3000:]
    report = run("coverage", "report", "--show-missing", "--skip-covered", "--fail-under=100")
    assert report.returncode == 0, report.stdout
