"""What we ask of a one-sided transfer engine, on both ends, and how its absence is told.

Invariant: an engine is asked only for what every engine does. None can take a write back, so the memory that it writes
to is `SlotPages.alias`, which can be made worthless; and none is believed when it says that a write has failed.
"""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Engine", "EngineMissing", "Span", "Transfer"]

from speedtier.errors import ConfigError

Span = tuple[int, int, int]
"""(address here, address there, bytes)."""


class EngineMissing(ConfigError):
    """The library of an engine cannot be used; the message says why, and how to get it."""


class Transfer(Protocol):
    """One write that was posted."""

    def done(self) -> bool:
        """Whether it reads no source and the engine calls it complete. Raises WireError if it has failed."""


class Engine(Protocol):
    """One end; used by one thread at a time."""

    patience_s: float
    """How long bytes may still be on their way when a write is called complete."""

    def register(self, address: int, size: int) -> None:
        """Let this memory be read from and written to. Raises WireError."""

    def forget(self, address: int) -> None:
        """Undo `register`. Writers that know the address may be able to write there nevertheless."""

    def name(self) -> bytes:
        """What a writer must know to write to the memory that is registered now."""

    def meet(self, name: bytes) -> str:
        """Learn how to write to another end; its address for `write`. Raises WireError."""

    def write(self, peer: str, spans: Sequence[Span]) -> Transfer:
        """Post one write. Raises WireError if it cannot be posted."""

    def poll(self) -> None:
        """Let arrive what peers have sent; the receiving end calls it again and again."""

    def close(self) -> None:
        """Let go of everything."""
