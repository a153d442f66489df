"""Pass `depend`: which earlier tasks a task must follow, from the regions that they read and write.

Output spec: for every element a task reads, its writer is among the task's producers (read after write). Buffers are
written once a step, so there is no other order to keep inside a step; steps are ordered by the engine itself.
"""

from collections import defaultdict

from persistent_engine.compile.tile import Piece, Region
from persistent_engine.plan import Access

__all__ = ["depend"]


def depend(pieces: list[Piece]) -> list[tuple[int, ...]]:
    """Producers of each task, ascending indices into `pieces`."""
    writers: dict[str, list[tuple[int, Region]]] = defaultdict(list)
    producers: list[tuple[int, ...]] = []
    for index, piece in enumerate(pieces):
        found: set[int] = set()
        for region in piece.regions:
            if region.access == Access.READ:
                found.update(writer for writer, written in writers[region.buffer] if written.overlaps(region))
        producers.append(tuple(sorted(found)))
        for region in piece.regions:
            if region.access == Access.WRITE:
                writers[region.buffer].append((index, region))
    return producers
