"""Facts of published models by name, from small copies of their config.json that are kept as data with their source."""

import json
from importlib.resources import files

from persistent_engine.models.config import describe
from persistent_engine.models.facts import ModelFacts
from speedtier.errors import PlanError

__all__ = ["KNOWN", "facts_of", "source_of"]

_DATA = files("persistent_engine.models") / "data"

KNOWN: tuple[str, ...] = tuple(sorted(entry.name[: -len(".json")] for entry in _DATA.iterdir()))
"""Names that `facts_of` takes."""


def _entry(name: str) -> dict[str, object]:
    if name not in KNOWN:
        raise PlanError(f"model is {name!r}; choose one of {', '.join(KNOWN)}, or the directory of a config.json")
    entry: dict[str, object] = json.loads((_DATA / f"{name}.json").read_text())
    return entry


def facts_of(name: str) -> ModelFacts:
    """Facts of the model called `name`, such as `glm-5.1`. Raises: PlanError for a name that is not in KNOWN."""
    config = _entry(name)["config"]
    assert isinstance(config, dict)
    return describe(config, name)


def source_of(name: str) -> str:
    """Where the numbers are from. Raises: PlanError for a name that is not in KNOWN."""
    return str(_entry(name)["source"])
