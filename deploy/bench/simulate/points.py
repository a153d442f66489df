"""Simulated steps of one model on one machine, by context, batch and speculation.

Invariant: a point is one plan on one machine; nothing in it comes from a published figure.
"""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from deploy.plan.target import Batch
from persistent_engine.plan import Plan
from persistent_engine.simulate import (
    FormulaCosts,
    Machine,
    Result,
    Workload,
    bounds_of,
    kernels_of,
    program_of,
    result_of,
    run,
)
from speedtier.errors import PlanError

__all__ = ["COSTS", "Point", "Points"]

COSTS = (
    "hbm_bytes_per_s",
    "lane_bytes_per_s",
    "l2_bytes_per_s",
    "link_bytes_per_s",
    "hbm_s",
    "l2_s",
    "signal_s",
    "wait_s",
    "hop_s",
    "task_s",
)
"""Figures of a machine that `doubled` looks at, one by one; rates are halved."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One step. committed: tokens of each request that it gives. kernels: the same work, by how kernels start."""

    committed: float
    batch: Batch
    result: Result
    bound_s: float
    kernels: dict[str, Result]

    @property
    def rate(self) -> float:
        """Tokens a second for each user."""
        return self.committed / self.result.step_s

    def kernel_rate(self, launch: str) -> float:
        """Tokens a second for each user, kernel by kernel."""
        return self.committed / self.kernels[launch].step_s


Compile = Callable[[int, Batch, int], Plan]
"""A plan for at most so many tokens of state, so many requests, so many drafted tokens."""


class Points:
    """Steps of plans that `compile_plan` makes, on one machine.

    buckets: the most tokens of state that each plan is for, ascending, as an engine keeps one for each. Plans are
    compiled once for each bucket, batch and draft depth.
    """

    def __init__(self, compile_plan: Compile, machine: Machine, buckets: Sequence[int]) -> None:
        self._compile, self._machine, self._buckets = compile_plan, machine, buckets
        self._plans: dict[tuple[int, Batch, int], Plan] = {}
        self._costs = FormulaCosts()

    def plan(self, context: int, batch: Batch, depth: int) -> Plan:
        """The plan that an engine runs at `context` tokens of state. Raises: PlanError past the last bucket."""
        bucket = next((most for most in self._buckets if context <= most), None)
        if bucket is None:
            raise PlanError(f"context is {context}; the largest bucket has {self._buckets[-1]}")
        key = (bucket, batch, depth)
        if key not in self._plans:
            self._plans[key] = self._compile(*key)
        return self._plans[key]

    def point(self, context: int, depth: int, committed: float, batch: Batch = 1) -> Point:
        """A step at `context` tokens of state. Raises: SpeedtierError."""
        load, machine = Workload(context + 1 + depth, batch, 1 + depth), self._machine
        plan = self.plan(load.context, batch, depth)
        program = program_of(plan, self._costs, machine, load)
        kernels = {
            "graph": result_of(run(kernels_of(plan, self._costs, machine, load, "graph"), 2)),
            "host": result_of(run(kernels_of(plan, self._costs, machine, load, "host"), 2)),
        }
        return Point(committed, batch, result_of(run(program)), bounds_of(program).most_s, kernels)

    def doubled(self, context: int) -> dict[str, float]:
        """How much longer a plain step takes, as a share, when one cost of the machine is twice what its sheet says."""
        load, machine = Workload(context + 1), self._machine
        plan = self.plan(load.context, 1, 0)
        plain = run(program_of(plan, self._costs, machine, load)).step_s
        longer = {}
        for name in COSTS:
            value = getattr(machine, name)
            worse = msgspec.structs.replace(machine, **{name: value / 2 if name.endswith("per_s") else 2 * value})
            longer[name] = run(program_of(plan, self._costs, worse, load)).step_s / plain - 1
        return longer
