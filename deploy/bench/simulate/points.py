"""Simulated steps of one model on one machine, by context, batch and speculation.

Invariant: a point is one plan on one machine; nothing in it comes from a published figure.
"""

import dataclasses

from deploy.plan.target import compile_for, machine_of
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

__all__ = ["Point", "Points"]


@dataclasses.dataclass(frozen=True)
class Point:
    """One step. committed: tokens of each request that it gives. kernels: the same work, by how kernels start."""

    committed: float
    batch: int
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


class Points:
    """Plans are compiled once for each batch and draft depth and kept."""

    def __init__(self, model: str, device: str, longest: int) -> None:
        self._model, self._device, self._longest = model, device, longest
        self._plans: dict[tuple[int, int], Plan] = {}
        self._costs = FormulaCosts()

    def plan(self, batch: int, depth: int) -> Plan:
        """The plan for `batch` requests whose steps verify `depth` drafted tokens."""
        if (batch, depth) not in self._plans:
            self._plans[batch, depth] = compile_for(self._model, self._device, self._longest, batch, depth)
        return self._plans[batch, depth]

    @property
    def machine(self) -> Machine:
        """The machine of all points."""
        return machine_of(self._device)

    def point(self, context: int, depth: int, committed: float, batch: int = 1) -> Point:
        """A step at `context` tokens of state. Raises: SpeedtierError."""
        plan, load = self.plan(batch, depth), Workload(context + 1 + depth, batch, 1 + depth)
        machine = self.machine
        program = program_of(plan, self._costs, machine, load)
        kernels = {
            "graph": result_of(run(kernels_of(plan, self._costs, machine, load, "graph"), 2)),
            "host": result_of(run(kernels_of(plan, self._costs, machine, load, "host"), 2)),
        }
        return Point(committed, batch, result_of(run(program)), bounds_of(program).most_s, kernels)
