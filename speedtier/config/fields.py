"""What a configuration struct says about its fields.

Invariant: everything that the command line shows of a field is read here, from the struct and nowhere else.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = ["Field", "choices", "field_at", "fields", "known_fields"]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field: `kind` is how its option is parsed, `type` the bare type of one value (of a table: of its values).

    argument: it is given by its place on the command line (`Meta(extra={"argument": True})`), not by its name.
    """

    name: str
    kind: Literal["one", "many", "struct", "structs", "table"]
    type: Any
    description: str
    required: bool
    default: Any
    argument: bool = False


def _inner(hint: Any) -> tuple[Any, str]:
    """Bare type and description of an annotation such as `Annotated[int | None, Meta(description=...)]`."""
    description = ""
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            found = [note.description for note in notes if isinstance(note, msgspec.Meta) and note.description]
            description = description or (found[-1] if found else "")  # the outermost is the most specific
        elif get_origin(hint) in (Union, types.UnionType):
            kept = [part for part in get_args(hint) if part is not type(None)]
            hint = kept[0] if len(kept) == 1 else str
        else:
            return hint, description


def _is_argument(hint: Any) -> bool:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(note, msgspec.Meta) and (note.extra or {}).get("argument", False) for note in notes)


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _kind(hint: Any) -> tuple[Literal["one", "many", "struct", "structs", "table"], Any]:
    origin = get_origin(hint) or hint
    if _is_struct(hint):
        return "struct", hint
    if isinstance(origin, type) and issubclass(origin, Mapping):
        arguments = get_args(hint)
        return "table", arguments[1] if len(arguments) == 2 else str
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset) and origin not in (str, bytes):
        arguments = get_args(hint)
        element = _inner(arguments[0])[0] if arguments else str
        return ("structs" if _is_struct(element) else "many"), element
    return "one", hint


def fields(type_: type[msgspec.Struct]) -> list[Field]:
    """The fields of `type_` in order."""
    hints = get_type_hints(type_, include_extras=True)
    found = []
    for field in msgspec.structs.fields(type_):
        bare, description = _inner(hints[field.name])
        kind, one = _kind(bare)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        found.append(
            Field(
                name=field.encode_name,
                kind=kind,
                type=one,
                description=description,
                required=field.required,
                default=None if field.required else default,
                argument=_is_argument(hints[field.name]),
            )
        )
    return found


def known_fields(type_: type[msgspec.Struct], path: str) -> list[str]:
    """Names that the struct at a msgspec path below `type_` accepts."""
    if not path:
        return [field.name for field in fields(type_)]
    at = field_at(type_, path)
    return [field.name for field in fields(at.type)] if at and at.kind in ("struct", "structs") else []


def field_at(type_: type[msgspec.Struct], path: str) -> Field | None:
    """The field at a msgspec path such as `decode[0].url`, or None."""
    found: Field | None = None
    current: Any = type_
    for key in path.split("."):
        if not _is_struct(current):
            return None
        found = next((field for field in fields(current) if field.name == key.partition("[")[0]), None)
        current = found.type if found else None
    return found


def choices(field: Field | None) -> tuple[Any, ...]:
    """The values of a `Literal` field; empty for any other."""
    return get_args(field.type) if field is not None and get_origin(field.type) is Literal else ()
