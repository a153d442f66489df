"""The table at the end, and the verdict.

Invariant: two answers count as the same only if every token id and the finish reason agree.
"""

from collections.abc import Sequence
from statistics import median

import msgspec
from rich.table import Table

from deploy.demo.ask import Answer

__all__ = ["Pair", "same", "table"]


class Pair(msgspec.Struct, frozen=True):
    """One question, both answers."""

    speed: Answer
    native: Answer

    def same(self) -> bool:
        return self.speed.ids == self.native.ids and self.speed.finish == self.native.finish

    def difference(self) -> str:
        """Where they part, for people."""
        pairs = zip(self.speed.ids, self.native.ids, strict=False)
        at = next((place for place, (one, two) in enumerate(pairs) if one != two), None)
        if at is None:
            lengths = f"{len(self.speed.ids)} and {len(self.native.ids)}"
            return f"lengths {lengths}, finish {self.speed.finish} and {self.native.finish}"
        return f"token {at} is {self.speed.ids[at]} on the speed tier, {self.native.ids[at]} on the native one"


def same(pairs: Sequence[Pair]) -> tuple[int, int]:
    """Tokens of the native answers, those that the speed tier gave too (up to the first difference), and
    how many.
    """
    agreeing = total = 0
    for pair in pairs:
        total += max(len(pair.native.ids), len(pair.speed.ids))
        for one, two in zip(pair.speed.ids, pair.native.ids, strict=False):
            if one != two:
                break
            agreeing += 1
    return agreeing, total


def table(title: str, pairs: Sequence[Pair]) -> Table:
    """Medians over `pairs`, measured one request at a time."""
    speed, native = [pair.speed for pair in pairs], [pair.native for pair in pairs]
    shown = Table(title=title, title_justify="left")
    shown.add_column("")
    for column in ("speed tier", "native (vLLM)", "ratio"):
        shown.add_column(column, justify="right")
    first = [median(answer.first_s for answer in side) * 1000 for side in (speed, native)]
    rate = [median(answer.rate for answer in side) for side in (speed, native)]
    shown.add_row("time to first token, ms", f"{first[0]:.1f}", f"{first[1]:.1f}", f"{first[1] / first[0]:.2f}x")
    shown.add_row("tokens/s/user after it", f"{rate[0]:.0f}", f"{rate[1]:.0f}", f"{rate[0] / rate[1]:.1f}x")
    return shown
