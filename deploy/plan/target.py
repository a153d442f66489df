"""From what a person types (a model, a machine) to facts, profiles and plans.

Invariant: a name that nobody knows is refused with those that are known.
"""

from pathlib import Path

from deploy.checkpoints import NAMES, ensure
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.devices import device
from persistent_engine.models import KNOWN, ModelFacts, facts_of, plan_facts, read_facts
from persistent_engine.plan import Plan
from persistent_engine.simulate import Machine, machine_from
from speedtier.errors import ConfigError

__all__ = ["compile_for", "facts_for", "machine_of"]


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


def compile_for(
    model: str, target: str, context: int, batch: int = 1, draft_depth: int = 0, policy: str = "list", workers: int = 0
) -> Plan:
    """A plan of `model` for the machine called `target`. Raises: ConfigError, PlanError."""
    if target != "cpu":
        raise ConfigError(f"device is {target!r}; choose one of cpu")
    if batch > 1 or draft_depth:
        raise ConfigError("a CPU plan decodes one token of one request; give --batch 1 and --draft-depth 0")
    return compile_plan(facts_for(model), this_cpu(workers), capacity=context, policy=policy)
