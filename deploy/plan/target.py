"""From what a person types (a model, a machine) to facts, profiles and plans.

Invariant: a name that nobody knows is refused with those that are known.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from deploy.checkpoints import NAMES, ensure
from persistent_engine.compile import Knobs, compile_plan, this_cpu
from persistent_engine.devices import device
from persistent_engine.models import KNOWN, ModelFacts, facts_of, plan_facts, read_facts
from persistent_engine.plan import Dtype, Plan
from persistent_engine.simulate import Machine, machine_from
from speedtier.errors import ConfigError

__all__ = ["Batch", "Target", "compile_for", "facts_for", "machine_of"]

Batch = Literal[1, 2, 4, 8]


def facts_for(model: str) -> ModelFacts:
    """Facts of a published model or a small checkpoint by name, else of the config.json in a directory.

    Raises: ConfigError that says which names there are, PlanError.
    """
    if model in KNOWN:
        return facts_of(model)
    if model in NAMES:
        return read_facts(ensure(model))
    if not Path(model).is_dir():
        known = ", ".join((*KNOWN, *NAMES))
        raise ConfigError(f"model is {model!r}; choose one of {known}, or a directory with a config.json")
    return plan_facts(Path(model))


def machine_of(name: str) -> Machine:
    """The machine called `name`. Raises: PlanError that says which there are."""
    return machine_from(device(name))


@dataclasses.dataclass(frozen=True)
class Target:
    """What to compile. context: most tokens of state. weights: dtype of matrices by name; `auto` is the checkpoint's on
    a CPU and FP8, state and all, on a machine with lanes. workers: of a CPU plan, 0 for one a core."""

    model: str
    device: str = "cpu"
    context: int = 4096
    batch: Batch = 1
    draft_depth: int = 0
    policy: str = "list"
    workers: int = 0
    weights: str = "auto"


def compile_for(target: Target, dump: Callable[[str, str], None] | None = None) -> Plan:
    """The plan. dump(pass, text): called after each pass. Raises: ConfigError, PlanError."""
    knobs = Knobs(batch=target.batch, draft_depth=target.draft_depth)
    sizes: dict[str, Any] = {"capacity": target.context, "policy": target.policy, "dump": dump}
    facts = facts_for(target.model)
    if target.weights != "auto":
        knobs = msgspec.structs.replace(knobs, weight_dtype=Dtype[target.weights])
    if target.device == "cpu":
        if target.batch > 1:
            raise ConfigError(f"batch is {target.batch}; a CPU plan decodes one request, give --batch 1")
        return compile_plan(facts, this_cpu(target.workers), knobs=knobs, **sizes)
    if target.weights == "auto":
        knobs, sizes["state_dtype"] = msgspec.structs.replace(knobs, weight_dtype=Dtype.FP8), Dtype.FP8
    return compile_plan(facts, device(target.device), knobs=knobs, **sizes)
