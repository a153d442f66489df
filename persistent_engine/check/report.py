"""Report: what the checker found, each finding with the rows of the plan that show it."""

from collections.abc import Iterator
from typing import Literal

import msgspec

__all__ = ["MOST_FINDINGS", "Finding", "Item", "Kind", "Report"]

Kind = Literal["arg", "buffer", "device", "event", "operator", "signal", "task", "wait", "worker", "name", "param"]

MOST_FINDINGS = 20
"""Findings that one rule reports before it says how many more there are; every row is checked all the same."""


class Item(msgspec.Struct, frozen=True):
    """A row of a table. name: as the plan's manifest calls it, "" for a row that has no name."""

    kind: Kind
    number: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.number}" + (f" ({self.name})" if self.name else "")


class Finding(msgspec.Struct, frozen=True):
    """A rule that does not hold. witness: the rows that show it, in the order in which the message speaks of them."""

    rule: str
    message: str
    witness: tuple[Item, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(str(item) for item in self.witness)
        return f"{self.rule}: {self.message}" + (f" [{shown}]" if shown else "")


class Report(msgspec.Struct, frozen=True):
    """Outcome of one check.

    digest: of the plan, "" when the bytes hold none. tasks: how many there are. rules: those that ran to their end;
    one that needs what a broken rule should have given (an order, when there is a cycle) does not run.
    """

    digest: str
    tasks: int
    rules: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def lines(self) -> Iterator[str]:
        """For a person: the verdict, then a line a finding."""
        if self.clean:
            yield f"plan {self.digest[:16]}: {self.tasks} tasks, {len(self.rules)} rules, no finding"
            return
        yield f"plan {self.digest[:16] or 'unreadable'}: {len(self.findings)} findings"
        yield from (str(finding) for finding in self.findings)
