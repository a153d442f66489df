"""One schema for what ran when, whether a simulator or an engine says so.

Invariant: spans of a worker do not overlap; times are seconds from the start of the first epoch that is shown.
"""

from typing import Literal

import msgspec

__all__ = ["WHOLE_STEP", "Span", "Trace", "Track"]

WHOLE_STEP = -1
"""In place of a task: the span is a whole step, since its source knows no finer times."""


class Track(msgspec.Struct, frozen=True):
    """A worker: its device's name and number, its warp role, its lanes."""

    device: int
    device_name: str
    role: str
    lanes: int


class Span(msgspec.Struct, frozen=True):
    """A task in one epoch. reached_s: its worker came to it; began_s: its waits held; ended_s: its last tile was done.

    worker: index of the track. task: row of the plan's tasks. after: the task of another worker whose signal it began
    after, or -1."""

    worker: int
    task: int
    epoch: int
    operator: str
    label: str
    layer: int
    reached_s: float
    began_s: float
    ended_s: float
    after: int = -1


class Trace(msgspec.Struct, frozen=True):
    """source: who says so. plan: content hash of the plan that ran."""

    source: Literal["simulated", "measured"]
    model: str
    device: str
    plan: str
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
