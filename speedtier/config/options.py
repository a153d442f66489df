"""Command line options made from a configuration struct.

A nested struct's fields get its name as a prefix (`--receiver-port`). A list of structs is given as
`name=value,name=value`, once for each element, a table as `name=value` (TOML values and dotted names). Typed values
are checked by the struct itself, so file and command line refuse the same things.

Invariant: an option that is not given leaves the file's value, and without a file the struct's default.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from speedtier.config.convert import from_mapping, read_mapping
from speedtier.config.fields import Field, choices, fields
from speedtier.errors import ConfigError

__all__ = ["command"]

T = TypeVar("T", bound=msgspec.Struct)

_Place = tuple[tuple[str, ...], Field]
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_PLAIN = (int, float, bool, str)


def command(type_: type[T], run: Callable[[T], None], *, help_: str) -> Callable[..., None]:
    """A function for `typer` with one option per field of `type_` and `--config FILE`; it calls `run`.

    It raises `ConfigError` for values that `type_` refuses.
    """
    flat = dict(_flat(type_))

    def invoke(config: Path | None, **given: Any) -> None:
        raw = read_mapping(config) if config is not None else {}
        for parameter, value in given.items():
            if value is not None and value != []:
                path, field = flat[parameter]
                _put(raw, path, _parsed(field, value))
        run(from_mapping(raw, type_, str(config) if config else "command line", lax=True))

    parameters = [_config_option(), *(_option(name, field) for name, (_, field) in flat.items())]
    invoke.__doc__ = help_
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return invoke


def _flat(type_: type[msgspec.Struct], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, _Place]]:
    """Parameter name -> path and field, nested structs spread out."""
    for field in fields(type_):
        path = (*prefix, field.name)
        if field.kind == "struct":
            yield from _flat(field.type, path)
        else:
            yield "_".join(path), (path, field)


def _config_option() -> inspect.Parameter:
    note = typer.Option("--config", help="TOML file with these settings; options given here win over it.")
    return inspect.Parameter("config", _KEYWORD, default=None, annotation=Annotated[Path | None, note])


def _option(name: str, field: Field) -> inspect.Parameter:
    several = field.kind != "one"
    one = field.type if field.kind in ("one", "many") and field.type in _PLAIN else str
    hint: Any = list[one] if several else one  # type: ignore[valid-type]
    note: Any = typer.Option(help=_help(field), show_default=False)
    if field.argument:
        note = typer.Argument(help=_help(field), show_default=False)
    return inspect.Parameter(name, _KEYWORD, default=None, annotation=Annotated[hint | None, note])


def _help(field: Field) -> str:
    text = field.description or field.name.replace("_", " ")
    if choices(field):
        text += f" One of {', '.join(map(str, choices(field)))}."
    if field.kind in ("structs", "table"):
        text += " As name=value,name=value; repeat for more." if field.kind == "structs" else " As name=value."
    if field.kind == "structs":
        text += f" Names: {', '.join(part.name for part in fields(field.type))}."
    if field.required:
        return f"{text} (required)"
    shown = msgspec.to_builtins(field.default)
    if field.kind == "structs":
        shown = " ".join(",".join(f"{name}={value}" for name, value in one.items()) for one in shown)
    return text if shown in (None, "", [], (), {}) else f"{text} (default {shown})"


def _parsed(field: Field, value: Any) -> Any:
    if field.kind == "table":
        return _table(field, [_pair(field, part) for part in value])
    if field.kind == "structs":
        return [dict(_pair(field, part) for part in one.split(",")) for one in value]
    return value


def _table(field: Field, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Text stays text where the table holds text; else each pair is a line of TOML, or text when it is none."""
    if field.type is str:
        return dict(pairs)
    return tomllib.loads("\n".join(_line(name, value) for name, value in pairs))


def _line(name: str, value: str) -> str:
    try:
        tomllib.loads(f"{name} = {value}")
    except tomllib.TOMLDecodeError:
        return f"{name} = {msgspec.json.encode(value).decode()}"
    return f"{name} = {value}"


def _pair(field: Field, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--{field.name.replace('_', '-')} {text!r}: write it as name=value")
    return name.strip(), value.strip()


def _put(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        raw = raw.setdefault(key, {})
    raw[path[-1]] = value
