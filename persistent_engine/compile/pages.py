"""Pass `pages`: activations of a device share pages of its memory when the one is dead before the other is written.

Output spec (`require_paged`): buffers that share a page follow each other: every access of the one is done, by order,
before any write of the next; and all are done before the leading worker ends the step, so the next step may begin anew.
"""

import dataclasses
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from persistent_engine.compile.assign import Assignment
from persistent_engine.compile.comm import LocalBuffer
from persistent_engine.compile.events import Schedule
from persistent_engine.compile.prune import Clocks, clocks
from persistent_engine.compile.tile import Piece
from persistent_engine.plan import Access, BufferKind
from speedtier.errors import PlanError

__all__ = ["PAGE_BYTES", "Pages", "assign_pages", "require_paged"]

PAGE_BYTES = 1024
Key = tuple[str, int]
Clock = NDArray[np.int32]


@dataclasses.dataclass
class Pages:
    """places: (first, count) of each activation, by name and device. totals: pages of each device."""

    places: dict[Key, tuple[int, int]] = dataclasses.field(default_factory=dict)
    totals: dict[int, int] = dataclasses.field(default_factory=lambda: defaultdict(int))


@dataclasses.dataclass
class _Life:
    """begin: what is surely done when the first write may begin. end: what has to be done when it is dead."""

    order: int
    begin: Clock
    end: Clock


@dataclasses.dataclass
class _Room:
    """Pages that are free once `end` is done."""

    first: int
    count: int
    end: Clock


def _lives(pieces: list[Piece], assignment: Assignment, done: Clocks) -> dict[Key, _Life]:
    rank = {task: at for at, task in enumerate(assignment.order)}
    lives: dict[Key, _Life] = {}
    for task in assignment.order:
        owner = assignment.owner[task]
        before = done[task].copy()
        before[owner] -= 1
        for region in pieces[task].regions:
            key = region.buffer, region.device
            life = lives.setdefault(key, _Life(rank[task], before.copy(), np.zeros_like(before)))
            if region.access == Access.WRITE:
                np.minimum(life.begin, before, out=life.begin)
            life.end[owner] = max(life.end[owner], done[task, owner])
    return lives


def assign_pages(pieces: list[Piece], buffers: list[LocalBuffer], assignment: Assignment, schedule: Schedule) -> Pages:
    """First fit, in the order of first writes."""
    done, pages = clocks(assignment, schedule), Pages()
    lives = _lives(pieces, assignment, done)
    final = done[next(task for task in reversed(assignment.order) if assignment.owner[task] == 0)]
    rooms: dict[int, list[_Room]] = defaultdict(list)
    chosen = [b for b in buffers if b.buffer.kind == BufferKind.ACTIVATION]
    for local in sorted(chosen, key=lambda b: (lives[b.buffer.name, b.device].order, b.name)):
        key = local.buffer.name, local.device
        life, free = lives[key], rooms[local.device]
        if (life.end > final).any():
            continue  # may outlive the step: memory of its own
        count = -(-int(local.rows * local.cols * local.buffer.dtype.bits) // (8 * PAGE_BYTES))
        room = next((r for r in free if r.count >= count and (r.end <= life.begin).all()), None)
        if room is None:
            room = _Room(pages.totals[local.device], count, life.end)
            pages.totals[local.device] += count
            free.append(room)
        elif room.count > count:
            free.append(_Room(room.first + count, room.count - count, room.end))
        room.count, room.end = count, life.end
        pages.places[key] = room.first, count
    return pages


def require_paged(pieces: list[Piece], assignment: Assignment, schedule: Schedule, pages: Pages) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    lives = _lives(pieces, assignment, clocks(assignment, schedule))
    last: dict[tuple[int, int], Key] = {}
    for key in sorted(pages.places, key=lambda key: lives[key].order):
        first, count = pages.places[key]
        for page in range(first, first + count):
            other = last.get((key[1], page))
            if other is not None and (lives[other].end > lives[key].begin).any():
                raise PlanError(f"page {page} of device {key[1]} is written for {key[0]!r} while it has {other[0]!r}")
            last[key[1], page] = key
