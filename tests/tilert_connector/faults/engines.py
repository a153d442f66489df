"""Whether a transport's library is here."""

from importlib.util import find_spec

__all__ = ["engine_missing"]

PACKAGES = {"nixl": "nixl", "mooncake": "mooncake"}


def engine_missing(transport: str) -> str:
    """Why a transport cannot be tried, and the way out; empty if it can."""
    package = PACKAGES.get(transport)
    if package is None or find_spec(package) is not None:
        return ""
    return f"transport {transport}: {package} is not installed; `make setup` installs it where it can"
