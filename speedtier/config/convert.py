"""From a TOML file or a mapping to a configuration struct.

Invariant: a value that is refused is named with its field, itself and what would be accepted.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from speedtier.config.fields import choices, field_at, known_fields
from speedtier.errors import ConfigError

__all__ = ["from_mapping", "read", "read_mapping"]

T = TypeVar("T", bound=msgspec.Struct)

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]+)`")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")


def read(path: Path, type_: type[T]) -> T:
    """Read the TOML file at `path`, or JSON if its name ends so, as `type_`. Raises `ConfigError`."""
    return from_mapping(read_mapping(path), type_, str(path))


def read_mapping(path: Path) -> dict[str, Any]:
    """The tables of a TOML or JSON file. Raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return msgspec.json.decode(text, type=dict[str, Any])
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a file that exists") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.DecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"{path}: not valid {kind}: {error}") from error


def from_mapping(raw: Mapping[str, Any], type_: type[T], source: str, *, lax: bool = False) -> T:
    """Convert `raw`; `source` is named in errors. `lax` takes numbers and booleans written as text. Raises
    `ConfigError`.
    """
    try:
        return msgspec.convert(raw, type_, strict=not lax)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_explain(str(error), raw, type_)}") from error


def _explain(message: str, raw: Mapping[str, Any], type_: type[msgspec.Struct]) -> str:
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    reason = message[: place.start()] if place else message
    if unknown := _UNKNOWN.search(reason):
        return _unknown(_joined(path, unknown["name"]), unknown["name"], known_fields(type_, path))
    if missing := _MISSING.search(reason):
        return f"{_joined(path, missing['name'])} is missing and has no default; set it"
    if options := choices(field_at(type_, path)):
        reason = f"take one of {', '.join(map(str, options))}"
    reason = reason[0].lower() + reason[1:]
    return f"{path or 'the whole'} = {_shown(raw, path)}: {reason}"


def _unknown(field: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    way_out = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}" if known else "remove it"
    return f"{field} is not a known field; {way_out}"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(raw: Any, path: str) -> str:
    """The value at a msgspec path such as `decode[0].url`; `[...]` stands for any index."""
    value = raw
    for key in re.findall(r"[^.\[\]]+|\[\.\.\.\]|\[\d+\]", path):
        try:
            value = value[int(key[1:-1])] if key[:1] == "[" and key != "[...]" else value[key]
        except (KeyError, IndexError, TypeError):
            break
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
