"""P7: within an epoch, accesses to one element are ordered by more than chance.

Activations: each writer is done before each reader of what it writes begins (read after write; a reader that comes
before the writer, or beside it, would read the epoch before). State planes: of two tasks whose boxes overlap and of
which one writes, one is done before the other begins (RAW, WAR, WAW). Pairs on different devices are P11's.
"""

from persistent_engine.check.found import Found
from persistent_engine.check.overlap import overlaps
from persistent_engine.check.report import Finding, Item
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Arg, BufferKind

__all__ = ["pair_witness", "rule", "state_pairs"]


def rule(view: View) -> list[Finding]:
    """Findings of P7."""
    found = Found("P7")
    for writer, reader in view.hazards.late.first:
        found("read while it may not be written yet", *pair_witness(view, writer, reader))
    for one, other in state_pairs(view):
        first, second = view.arg_task[one], view.arg_task[other]
        loose = ~view.order.before(first, second) & ~view.order.before(second, first) & (first != second)
        for left, right in zip(one[loose], other[loose], strict=True):
            found("state written by one and touched by the other, in no order", *pair_witness(view, left, right))
    return found.all


def state_pairs(view: View) -> list[tuple[Ints, Ints]]:
    """Pairs of arguments on a state plane that overlap and of which the first writes; two writers once."""
    written, read = view.written(BufferKind.STATE), view.read(BufferKind.STATE)
    pairs = list(overlaps(view, written, read))
    return pairs + [(one[one < other], other[one < other]) for one, other in overlaps(view, written, written)]


def pair_witness(view: View, one: int, other: int) -> tuple[Item, ...]:
    """The buffer and the two tasks."""
    tasks = (view.item("task", view.arg_task[arg]) for arg in (one, other))
    return view.item("buffer", view.args[one, Arg.BUFFER]), *tasks
