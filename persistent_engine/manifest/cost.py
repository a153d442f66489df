"""Cost of a task in one decode step, from the formulas of its operator.

Invariant: bytes count scales through `Dtype.bits`; nothing is taken to come from a cache, so callers that know better
(activations, a state that several tasks read) take it off.
"""

import dataclasses

__all__ = ["Cost", "Workload"]


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What one step has to do. context: tokens of state, the new ones included. batch: requests. tokens: of each
    request in one step (1 + draft depth when drafted tokens are verified).

    In formulas: T is context, B is batch, M is batch x tokens.
    """

    context: int
    batch: int = 1
    tokens: int = 1

    @property
    def names(self) -> dict[str, float]:
        """Values for formulas."""
        return {"T": self.context, "B": self.batch, "M": self.batch * self.tokens}


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """flops: a multiplication and an addition are two. bytes: of each argument, in order, read or written."""

    flops: float
    bytes: tuple[float, ...]
    written: tuple[bool, ...]

    @property
    def read_bytes(self) -> float:
        """Bytes read by all arguments."""
        return sum(size for size, written in zip(self.bytes, self.written, strict=True) if not written)

    @property
    def written_bytes(self) -> float:
        """Bytes written by all arguments."""
        return sum(size for size, written in zip(self.bytes, self.written, strict=True) if written)
