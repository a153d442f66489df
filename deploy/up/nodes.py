"""The decode node and the router as parts of a stack.

Invariant: each gets its whole configuration as one file, checked against its own struct before anything
starts.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from deploy.processes import Part
from speedtier.config import from_mapping
from speedtier.errors import ConfigError

__all__ = ["decode_part", "router_part"]


def decode_part(directory: Path, settings: Mapping[str, Any], extra: Mapping[str, Any]) -> Part:
    """A decode node with `settings`, which `extra` may add to but not contradict. Raises `ConfigError`."""
    from persistent_engine.server import DecodeConfig

    return _part("decode", directory, DecodeConfig, settings, extra)


def router_part(directory: Path, settings: Mapping[str, Any], extra: Mapping[str, Any]) -> Part:
    """A router with `settings`, which `extra` may add to but not contradict. Raises `ConfigError`."""
    from router import RouterConfig

    return _part("router", directory, RouterConfig, settings, extra)


def _part(
    name: str,
    directory: Path,
    type_: type[msgspec.Struct],
    settings: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> Part:
    for field in settings:
        if field in extra:
            raise ConfigError(f"{name}.{field} = {extra[field]!r}: the launcher sets it; remove it")
    config = from_mapping({**settings, **extra}, type_, f"[{name}]")
    file = directory / f"{name}.json"
    directory.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    return Part(
        name=name,
        command=(sys.executable, "-m", "deploy.cli", name, "--config", str(file)),
        health=f"http://127.0.0.1:{settings['port']}/health",
    )
