"""Pass `assign`: a worker for each task. Queues keep graph order, so no queue can wait on its own later task.

Output spec: every task has one worker; the sampling task is on worker 0, which leads the steps.
"""

from collections.abc import Callable

from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.compile.tile import Piece
from persistent_engine.models import Graph

__all__ = ["POLICIES", "Policy"]

Policy = Callable[[Graph, list[Piece], list[tuple[int, ...]], DeviceProfile], list[int]]


def _list(graph: Graph, pieces: list[Piece], producers: list[tuple[int, ...]], profile: DeviceProfile) -> list[int]:
    """Each task to the worker that would finish it first; ties to the lowest."""
    free = [0.0] * profile.workers
    finish: list[float] = []
    workers: list[int] = []
    for index, piece in enumerate(pieces):
        duration = piece.cost / profile.bytes_per_s
        candidates = [0] if graph.nodes[piece.node].operator == "sample" else range(profile.workers)
        best = (float("inf"), 0)
        for worker in candidates:
            ready = max(
                (finish[p] + (profile.sync_s if workers[p] != worker else 0.0) for p in producers[index]), default=0.0
            )
            best = min(best, (max(free[worker], ready) + duration, worker))
        finish.append(best[0])
        free[best[1]] = best[0]
        workers.append(best[1])
    return workers


def _round_robin(
    graph: Graph, pieces: list[Piece], producers: list[tuple[int, ...]], profile: DeviceProfile
) -> list[int]:
    """Task i to worker i modulo the number of workers."""
    return [
        0 if graph.nodes[piece.node].operator == "sample" else index % profile.workers
        for index, piece in enumerate(pieces)
    ]


POLICIES: dict[str, Policy] = {"list": _list, "round_robin": _round_robin}
"""Placement policies by name."""
