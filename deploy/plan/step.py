"""The plan, the machine, the load and the costs that a command is to simulate.

Invariant: a plan is compiled where none is given, and a machine named where the plan does not say it.
"""

import dataclasses

from deploy.plan.config import StepConfig
from deploy.plan.files import read
from deploy.plan.target import Target, compile_for, machine_of
from persistent_engine.plan import Plan
from persistent_engine.simulate import Costs, FormulaCosts, Machine, Workload
from speedtier.errors import ConfigError

__all__ = ["Step", "step_of"]


@dataclasses.dataclass(frozen=True)
class Step:
    """One decode step to simulate."""

    plan: Plan
    machine: Machine
    load: Workload
    costs: Costs


def step_of(config: StepConfig) -> Step:
    """What `config` asks for. Raises: ConfigError, PlanError."""
    if bool(config.plan) == bool(config.model):
        raise ConfigError("give a plan file or --model, one of the two")
    load = Workload(config.context + 1 + config.draft_depth, config.batch, 1 + config.draft_depth)
    if config.plan:
        plan = read(config.plan)
        for name in ("draft_depth", "batch"):
            given, own = getattr(config, name), plan.manifest.limits.get(name)
            if own is not None and given != own:
                option = name.replace("_", "-")
                raise ConfigError(f"{name} is {given}; the plan is for {own}, give --{option} {own}")
    else:
        device = config.device or "cpu"
        plan = compile_for(Target(config.model, device, load.context, config.batch, config.draft_depth))
    return Step(plan, machine_of(config.device or plan.manifest.device), load, FormulaCosts())
