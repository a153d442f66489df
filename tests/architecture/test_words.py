"""The project speaks of itself alone: no hosts but the few that it means, no paths of anyone's machine."""

import re

from tests.architecture.sources import ROOT, tracked

HOSTS = {
    "127.0.0.1",
    "localhost",
    "download.pytorch.org",  # where the CPU build of torch is, when pip's sources lack it
    "www.apache.org",  # the licence
    "github.com",
    "www.w3.org",  # the name space of a drawing
}
URL = re.compile(r"\b(?:https?|tcp|git|ssh)://(?:[^/\s@\"']*@)?([A-Za-z0-9.-]+\.[A-Za-z0-9-]{2,}|localhost)")
PATHS = re.compile(r"(?<![\w./-])/(?:root|home|work|Users)/\w")


def texts() -> list[tuple[str, str]]:
    found = []
    for path in tracked():
        if path == ROOT / "tests" / "architecture" / "test_words.py":
            continue
        try:
            found.append((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def test_only_known_hosts_are_named() -> None:
    def known(host: str) -> bool:
        return host in HOSTS or host.endswith((".example", ".invalid", ".test")) or host.startswith("127.")

    assert {(name, host) for name, text in texts() for host in URL.findall(text) if not known(host)} == set()


def test_no_path_of_a_machine_is_named() -> None:
    assert {(name, found.group()) for name, text in texts() for found in PATHS.finditer(text)} == set()


def test_the_patterns_find_what_they_look_for() -> None:
    assert URL.findall("see https://wheels.internal.net/simple") == ["wheels.internal.net"]
    assert PATHS.search("open('/home/someone/x')") and not PATHS.search("GET http://a/home/b")
