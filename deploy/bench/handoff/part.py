"""What one measurement brings to the report."""

from typing import Any

import msgspec

__all__ = ["Part"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A table for people, and the keys that it adds to the JSON's `figures`, `against` and `ratio`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    against: dict[str, Any] = {}
    ratio: dict[str, float] = {}
