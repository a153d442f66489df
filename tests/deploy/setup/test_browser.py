"""The browser that set-up brings: taken where there is one, said where there is none."""

from pathlib import Path

import pytest

from deploy.setup.apt import unpacked
from deploy.setup.browser import PACKAGE, browser, find


def script(path: Path, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no browser and no apt
    monkeypatch.delenv("SPEEDTIER_BROWSER", raising=False)


def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    browser(tmp_path, said.append)
    assert find(tmp_path) is None and "will be skipped" in said[-1]
    with unpacked([PACKAGE], whole=True) as tree:
        assert tree is None


def test_one_that_is_there_is_taken_and_nothing_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    own = script(tmp_path / "lib" / "speedtier-browser" / "usr" / "lib" / "chromium" / PACKAGE)
    found = find(tmp_path)
    assert found is not None and found.executable == own
    script(tmp_path / "bin" / "chromium", status=1)  # one that does not start is none
    assert find(tmp_path) == found
    named = script(tmp_path / "elsewhere" / "browser")
    monkeypatch.setenv("SPEEDTIER_BROWSER", str(named))
    found = find(tmp_path)
    assert found is not None and found.executable == named
    browser(tmp_path, said.append)
    assert said == []
