"""What a task moves and computes, and how long that takes when it has its device to itself.

Invariant: a task's time follows from its work and the machine alone; nothing is known here of one operator or model.
"""

import dataclasses
from typing import Protocol

import numpy as np

from persistent_engine.manifest import Workload
from persistent_engine.plan import Plan
from persistent_engine.simulate.machine import Machine
from persistent_engine.simulate.program import Bound
from speedtier.errors import PlanError

__all__ = ["Costs", "FixedCosts", "Work", "time_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Of one task in one step. memory_bytes: from and to the device's memory. cache_bytes: that the on-chip cache
    serves. link_bytes: sent to other devices, all together. flops, and the dtype that they are done in. memory_trips,
    cache_trips: round trips that follow one another before the first result can be made. tiles: that lanes share.
    scores: of which the largest are chosen; where that was measured, it takes as long as measured."""

    memory_bytes: float = 0.0
    cache_bytes: float = 0.0
    link_bytes: float = 0.0
    flops: float = 0.0
    dtype: str = "BF16"
    memory_trips: int = 0
    cache_trips: int = 0
    tiles: int = 1
    scores: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        """Both, done by the same lanes side by side."""
        return Work(
            self.memory_bytes + other.memory_bytes,
            self.cache_bytes + other.cache_bytes,
            self.link_bytes + other.link_bytes,
            self.flops + other.flops,
            self.dtype if self.flops >= other.flops else other.dtype,
            max(self.memory_trips, other.memory_trips),
            max(self.cache_trips, other.cache_trips),
            self.tiles + other.tiles,
            max(self.scores, other.scores),
        )


class Costs(Protocol):
    """Where the work of a plan's tasks comes from."""

    def work(self, plan: Plan, task: int, load: Workload) -> Work:
        """Work of row `task` of the plan's tasks in a step of `load`."""
        ...


class FixedCosts:
    """Public fake: the work of each task as it is given, by row; `Work()` for others."""

    def __init__(self, works: dict[int, Work] | None = None) -> None:
        self.works = works or {}

    def work(self, plan: Plan, task: int, load: Workload) -> Work:
        """As `Costs.work`."""
        return self.works.get(task, Work())


def time_of(work: Work, lanes: int, machine: Machine) -> tuple[float, float, Bound]:
    """Seconds before the first byte, seconds from first byte to last with the memory to itself, and what those are.

    Tiles run in ceil(tiles / lanes) waves, so tiles / waves lanes are busy on average. Raises: PlanError for work in a
    dtype that the machine has no rate for.
    """
    waves = -(-work.tiles // lanes)
    share = work.tiles / waves / machine.lanes
    rate = machine.flops_per_s.get(work.dtype)
    if rate is None:
        known = ", ".join(sorted(machine.flops_per_s))
        raise PlanError(f"machine {machine.name!r} has no arithmetic rate for {work.dtype!r}; it has {known}")
    drawn = work.tiles / waves * machine.lane_bytes_per_s
    times: dict[Bound, float] = {
        "memory": work.memory_bytes / machine.hbm_bytes_per_s,
        "lanes": (work.memory_bytes + work.cache_bytes) / drawn,
        "cache": (work.memory_bytes + work.cache_bytes) / machine.l2_bytes_per_s,
        "arithmetic": work.flops / (rate * share),
        "link": work.link_bytes / machine.link_bytes_per_s,
    }
    if machine.selection and work.scores >= machine.selection[0][0]:
        times["selection"] = _selection_s(work.scores, machine)
    bound = max(times, key=lambda name: times[name])
    fixed = machine.task_s + work.memory_trips * machine.hbm_s + work.cache_trips * machine.l2_s
    return fixed, times[bound], bound if times[bound] else "latency"


def _selection_s(scores: float, machine: Machine) -> float:
    """Between measured sizes by straight lines; past the last one as long as that."""
    return float(np.interp(scores, [size for size, _ in machine.selection], [time for _, time in machine.selection]))
