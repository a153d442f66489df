"""One rule a file: `rule(view)` gives its findings. `RULES` has them in the order in which they run."""

from collections.abc import Callable

from persistent_engine.check.report import Finding
from persistent_engine.check.rules import (
    bucket,
    comm,
    coverage,
    cycles,
    epochs,
    limits,
    operators,
    pages,
    placement,
    reach,
    references,
    regions,
    waits,
)
from persistent_engine.check.view import View

__all__ = ["NEEDS", "RULES", "Rule"]

Rule = Callable[[View], list[Finding]]

RULES: dict[str, Rule] = {
    "P1": references.rule,
    "P2": operators.rule,
    "P3": limits.rule,
    "P4": waits.rule,
    "P5": cycles.rule,
    "P6": coverage.rule,
    "P7": regions.rule,
    "P8": epochs.rule,
    "P9": pages.rule,
    "P10": placement.rule,
    "P11": comm.rule,
    "P12": reach.rule,
    "P13": bucket.rule,
}

ORDERED = frozenset({"P1", "P5"})

NEEDS: dict[str, frozenset[str]] = {
    "P1": frozenset(),
    **{rule: frozenset({"P1"}) for rule in ("P2", "P3", "P4", "P5", "P6", "P10", "P12")},
    **{rule: ORDERED for rule in ("P7", "P8", "P9", "P11")},
    "P13": frozenset({"P1", "P2"}),
}
"""Rules that must hold for a rule to mean anything; it does not run when one of them is broken."""
