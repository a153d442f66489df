"""Pass `depend`: which earlier tasks a task must follow, from the regions that they read and write.

Output spec (`require_dependent`): producers come before their task, and for every element a task reads, its writer is
among them (read after write). Buffers are written once a step, so there is no other order to keep inside a step; steps
are ordered by the engine itself. A state plane that devices share counts as one buffer, whoever reads it.
"""

from collections import defaultdict

from persistent_engine.compile.tile import Piece, Region
from persistent_engine.plan import Access
from speedtier.errors import PlanError

__all__ = ["depend", "require_dependent"]


def depend(pieces: list[Piece], shared: frozenset[str] = frozenset()) -> list[tuple[int, ...]]:
    """Producers of each task, ascending indices into `pieces`. shared: buffers that all devices have in common."""
    writers: dict[tuple[str, int], list[tuple[int, Region]]] = defaultdict(list)
    producers: list[tuple[int, ...]] = []

    def key(region: Region) -> tuple[str, int]:
        return region.buffer, -1 if region.buffer in shared else region.device

    for index, piece in enumerate(pieces):
        found: set[int] = set()
        for region in piece.regions:
            if region.access == Access.READ:
                found.update(writer for writer, box in writers[key(region)] if box.overlaps(region))
        producers.append(tuple(sorted(found)))
        for region in piece.regions:
            if region.access == Access.WRITE:
                writers[key(region)].append((index, region))
    return producers


def require_dependent(pieces: list[Piece], producers: list[tuple[int, ...]]) -> None:
    """Raise PlanError unless producers come first and write of each buffer that a task reads, if one before it did."""
    written: set[tuple[str, int]] = set()
    for index, (piece, needed) in enumerate(zip(pieces, producers, strict=True)):
        if any(producer >= index for producer in needed):
            raise PlanError(f"task {index} ({piece.label!r}) needs {needed}, which are not all before it")
        inputs = {(r.buffer, r.device) for r in piece.regions if r.access == Access.READ}
        outputs = {(r.buffer, r.device) for p in needed for r in pieces[p].regions if r.access == Access.WRITE}
        if missing := sorted((inputs - outputs) & written):
            raise PlanError(
                f"task {index} ({piece.label!r}) reads {missing}, of which no writer is among its producers"
            )
        written |= {(r.buffer, r.device) for r in piece.regions if r.access == Access.WRITE}
