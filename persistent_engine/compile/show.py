"""What each pass made, as text: one line for each thing, so that two dumps can be compared by line."""

import dataclasses
from collections.abc import Callable, Iterator

from persistent_engine.compile.assign import Assignment
from persistent_engine.compile.comm import LocalBuffer
from persistent_engine.compile.events import Schedule
from persistent_engine.compile.pages import Pages
from persistent_engine.compile.place import Placement
from persistent_engine.compile.tile import Piece
from persistent_engine.models import Graph
from persistent_engine.plan import TABLES, Access, Plan

__all__ = ["PASSES", "Compiled", "show_pass"]


@dataclasses.dataclass
class Compiled:
    """What the passes so far have made; empty for those to come."""

    graph: Graph
    placement: Placement = dataclasses.field(default_factory=lambda: Placement((), [], frozenset()))
    pieces: list[Piece] = dataclasses.field(default_factory=list)
    buffers: list[LocalBuffer] = dataclasses.field(default_factory=list)
    producers: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    assignment: Assignment = dataclasses.field(default_factory=lambda: Assignment([], [], []))
    schedule: Schedule = dataclasses.field(default_factory=lambda: Schedule([], [], []))
    pages: Pages = dataclasses.field(default_factory=Pages)
    plan: Plan | None = None


def _lower(made: Compiled) -> Iterator[str]:
    for node in made.graph.nodes:
        boxes = " ".join(box.buffer if box.split is None else f"{box.buffer}/{box.split}" for box in node.boxes)
        yield f"{node.label}: {node.operator} x{node.rows} {boxes}"


def _place(made: Compiled) -> Iterator[str]:
    for device, role in enumerate(made.placement.roles):
        yield f"device {device}: {role.name}"
    for node, shares in zip(made.graph.nodes, made.placement.shares, strict=True):
        parts = [s.heads[:2] if s.heads else s.rows for s in shares]
        shown = " ".join(f"{s.device}[{a}:{b}]" for s, (a, b) in zip(shares, parts, strict=True))
        yield f"{node.label}: {node.operator} on {shown}"


def _tasks(made: Compiled) -> Iterator[str]:
    for index, piece in enumerate(made.pieces):
        boxes = " ".join(
            f"{'>' if r.access == Access.WRITE else ''}{r.buffer}@{r.device}"
            f"[{r.rows[0]}:{r.rows[1]},{r.cols[0]}:{r.cols[1]}]"
            for r in piece.regions
        )
        rows = f"[{piece.rows[0]}:{piece.rows[1]}]"
        yield f"{index} {piece.label}: {piece.operator} on {piece.device} {rows} x{piece.tiles} {boxes}"


def _depend(made: Compiled) -> Iterator[str]:
    for index, needed in enumerate(made.producers):
        yield f"{index} {made.pieces[index].label}: after {' '.join(map(str, needed)) or 'nothing'}"


def _assign(made: Compiled) -> Iterator[str]:
    for worker, spec in enumerate(made.assignment.workers):
        queue = [str(task) for task in made.assignment.order if made.assignment.owner[task] == worker]
        yield f"worker {worker}: device {spec.device} {spec.role.name} x{spec.lanes}: {' '.join(queue)}"


def _schedule(made: Compiled) -> Iterator[str]:
    for number, event in enumerate(made.schedule.events):
        yield f"event {number} {event.name} on {event.device}: {' '.join(map(str, event.members))}"
    for task, events in enumerate(made.schedule.waits):
        if events:
            yield f"task {task} waits for {' '.join(map(str, events))}"


def _pages(made: Compiled) -> Iterator[str]:
    for device in range(len(made.placement.roles)):
        yield f"device {device}: {made.pages.totals.get(device, 0)} pages"
    for (name, device), (first, count) in made.pages.places.items():
        yield f"{name}@{device}: [{first}:{first + count}]"


def _encode(made: Compiled) -> Iterator[str]:
    assert made.plan is not None
    for name in TABLES:
        yield f"{name}: {len(getattr(made.plan, name))} rows"
    yield f"digest: {made.plan.digest}"


PASSES: dict[str, Callable[[Compiled], Iterator[str]]] = {
    "lower": _lower,
    "place": _place,
    "tile": _tasks,
    "comm": _tasks,
    "depend": _depend,
    "assign": _assign,
    "events": _schedule,
    "prune": _schedule,
    "pages": _pages,
    "encode": _encode,
}
"""Passes in their order, and how each one's result is shown."""


def show_pass(name: str, made: Compiled) -> str:
    """The result of pass `name`, a line for each thing."""
    return "\n".join(PASSES[name](made)) + "\n"
