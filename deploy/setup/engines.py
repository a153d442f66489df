"""The transfer engines, NIXL and Mooncake: optional, so what cannot be had is said and left out.

Invariant: nothing outside `.venv` changes; a library of the system that Mooncake needs and the machine lacks is put
inside it.
"""

from collections.abc import Callable, Sequence

from deploy.setup.libraries import Libraries
from deploy.setup.pip import Pip

__all__ = ["PROBES", "engines"]

PROBES = {"nixl": "nixl._api", "mooncake-transfer-engine-non-cuda": "tilert_connector.transport.mooncake_library"}
"""What shows whether a distribution can be used."""
MISSING = ("libibverbs1", "libnl-3-200", "libnl-route-3-200")
"""Debian packages of what Mooncake's wheel lacks."""


def engines(pip: Pip, wanted: Sequence[str], libraries: Libraries, say: Callable[[str], None]) -> None:
    """Install the exact requirements `wanted`, without what they depend on: NIXL would pull a CUDA build of torch."""
    absent = [one for one in wanted if pip.version(one.partition("==")[0]) != one.partition("==")[2]]
    if absent:
        say(f"installing the transfer engines: {', '.join(absent)}")
    for one in absent:
        if not pip.install(["--no-deps", one]):
            say(f"{one} is left out: pip cannot install it; the transport that needs it will say so")
    for name, probe in PROBES.items():
        if pip.version(name) is None:
            continue
        complaint = pip.complaint(probe)
        if complaint is not None and "libibverbs" in complaint and libraries.fetch(MISSING):
            complaint = pip.complaint(probe)
        if complaint is not None:
            say(f"{name} is installed but cannot be used, and its tests will be skipped: {complaint}")
