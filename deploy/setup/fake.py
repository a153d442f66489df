"""A pip without packages: remembers what it was asked and refuses what its sources do not hold.

Invariant: `installed` is what a real environment would hold after the same calls.
"""

from collections.abc import Sequence

__all__ = ["FakePip"]


class FakePip:
    """`sources` maps an index (None: pip's own sources) to the exact requirements that it can serve.

    `companions` maps a requirement to distributions that come with it; `broken` names modules whose import
    fails for `reason`.
    """

    def __init__(
        self,
        sources: dict[str | None, set[str]],
        companions: dict[str, Sequence[str]] | None = None,
        broken: Sequence[str] = (),
        reason: str = "ImportError",
    ) -> None:
        self.sources = sources
        self.companions = companions or {}
        self.broken = list(broken)
        self.reason = reason
        self.installed: dict[str, str] = {}
        self.calls: list[tuple[str, tuple[str, ...], str | None]] = []

    def install(self, arguments: Sequence[str], index: str | None = None) -> bool:
        self.calls.append(("install", tuple(arguments), index))
        reachable = self.sources.get(None, set()) | self.sources.get(index, set())
        wanted = [argument for argument in arguments if not argument.startswith("-")]
        if not all(name in reachable for name in wanted):
            return False
        for requirement in wanted:
            for one in (requirement, *self.companions.get(requirement, ())):
                name, _, version = one.partition("==")
                self.installed[name] = version or "0"
        return True

    def uninstall(self, names: Sequence[str]) -> None:
        self.calls.append(("uninstall", tuple(names), None))
        for name in names:
            self.installed.pop(name, None)

    def version(self, name: str) -> str | None:
        return self.installed.get(name)

    def complaint(self, module: str) -> str | None:
        return f"{self.reason}: {module}" if module in self.broken else None
