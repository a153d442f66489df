"""One process of a stack: what to run, and how to tell that it serves.

Invariant: a part that fails is reported with its name, its log file and the last lines of it.
"""

from pathlib import Path

import msgspec

from speedtier.errors import SpeedtierError

__all__ = ["Part", "PartFailed", "last_lines"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`health` is a URL that answers 200 once the part serves; `environment` is added to the launcher's
    own.
    """

    name: str
    command: tuple[str, ...]
    health: str
    environment: dict[str, str] = {}
    start_timeout_s: float = 300.0
    grace_s: float = 10.0


class PartFailed(SpeedtierError):
    """A part did not come up, or ended on its own."""

    def __init__(self, part: Part, what: str, log: Path) -> None:
        super().__init__(f"{part.name} {what}; its log is {log}\n{last_lines(log)}")
        self.part = part


def last_lines(log: Path, count: int = 15) -> str:
    """The last `count` lines of a log, indented; empty when there is none yet."""
    try:
        lines = log.read_bytes()[-16384:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join("  | " + line for line in lines[-count:])
