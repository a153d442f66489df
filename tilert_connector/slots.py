"""Which slots are free, who holds the others, and whose state still lies in the free ones.

Invariant: a generation is never used twice, only its holder's generation gives a slot back, and what a free slot is
said to hold is what was last committed to it.
"""

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from tilert_connector.chain import BLOCK, Prefix, shared_blocks

__all__ = ["Slots", "Taken"]


class Taken(NamedTuple):
    """A slot and its new generation. blocks: leading blocks of the wanted prefix that it holds; tail: token ids of
    the state behind them, which may go on as the wanted prefix does."""

    slot: int
    generation: int
    blocks: int = 0
    tail: tuple[int, ...] = ()


class Slots:
    """`total` slots, all free and empty."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free: dict[int, Prefix | None] = dict.fromkeys(range(total))
        """Least recently used first."""
        self._holders: dict[int, int] = {}
        self._generations = count(1)

    @property
    def free(self) -> int:
        """How many nobody holds."""
        return len(self._free)

    def generation(self) -> int:
        """A number that was never given before."""
        return next(self._generations)

    def take(self, wanted: bytes = b"") -> Taken | None:
        """A free slot for a prompt with this chain, or None. It holds nothing for anyone else from now on.

        The slot that shares most is taken, if what it would lose is no more than what it saves; otherwise an empty one
        or the one that nobody has used for longest.
        """
        if not self._free:
            return None
        slot = self._most_shared(wanted)
        if slot is None:
            slot = next((slot for slot, prefix in self._free.items() if prefix is None), next(iter(self._free)))
        prefix = self._free.pop(slot)
        generation = self._holders[slot] = self.generation()
        blocks = shared_blocks(prefix.chain, wanted) if prefix is not None and wanted else -1
        if prefix is None or blocks < 0:
            return Taken(slot, generation)
        return Taken(slot, generation, blocks, prefix.tail(blocks))

    def release(self, slot: int, generation: int, prefix: Prefix | None = None) -> bool:
        """Give the slot back, with the state that it holds. False, and nothing happens, if this generation does not
        hold it."""
        if self._holders.get(slot) != generation:
            return False
        del self._holders[slot]
        self._free[slot] = prefix
        return True

    def holders(self) -> dict[int, int]:
        """slot -> generation of each slot that is not free."""
        return dict(self._holders)

    def resident(self) -> dict[int, int]:
        """slot -> tokens whose state lies in a free slot."""
        return {slot: prefix.tokens for slot, prefix in self._free.items() if prefix is not None}

    def forget(self) -> None:
        """Drop all state that free slots hold."""
        self._free = dict.fromkeys(self._free)

    def _most_shared(self, wanted: bytes) -> int | None:
        best, most = None, 0
        for slot, prefix in self._kept(wanted):
            common = shared_blocks(prefix.chain, wanted) * BLOCK
            if common >= most and common > 0 and 2 * common + BLOCK >= prefix.tokens:
                best, most = slot, common
        return best

    def _kept(self, wanted: bytes) -> Iterable[tuple[int, Prefix]]:
        return ((slot, prefix) for slot, prefix in self._free.items() if prefix is not None and wanted)
