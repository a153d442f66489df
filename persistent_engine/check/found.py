"""Found: collects one rule's findings; the first ones in full, the rest as a number."""

from persistent_engine.check.report import MOST_FINDINGS, Finding, Item

__all__ = ["Found"]


class Found:
    """Findings of one rule."""

    def __init__(self, rule: str) -> None:
        self._rule, self._findings, self._more = rule, list[Finding](), 0

    def __call__(self, message: str, *witness: Item) -> None:
        """Add one."""
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(Finding(self._rule, message, witness))
        else:
            self._more += 1

    @property
    def all(self) -> list[Finding]:
        """Those added, and a last one that counts what is left out."""
        more = [Finding(self._rule, f"and {self._more} more")] if self._more else []
        return self._findings + more
