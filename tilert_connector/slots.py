"""Which slots are free, and who holds the others.

Invariant: a generation is never used twice, and only its holder's generation gives a slot back.
"""

from collections import deque
from itertools import count

__all__ = ["Slots"]


class Slots:
    """`total` slots, all free."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = deque(range(total))
        self._holders: dict[int, int] = {}
        self._generations = count(1)

    def generation(self) -> int:
        """A number that was never given before."""
        return next(self._generations)

    def take(self) -> tuple[int, int] | None:
        """(slot, generation) of a free slot, or None."""
        if not self._free:
            return None
        slot, generation = self._free.popleft(), self.generation()
        self._holders[slot] = generation
        return slot, generation

    def release(self, slot: int, generation: int) -> bool:
        """Give the slot back; False, and nothing happens, if this generation does not hold it."""
        if self._holders.get(slot) != generation:
            return False
        del self._holders[slot]
        self._free.append(slot)
        return True

    def holders(self) -> dict[int, int]:
        """slot -> generation of each slot that is not free."""
        return dict(self._holders)
