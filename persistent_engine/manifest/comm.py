"""Communication: boxes that one device writes into the memory of others, and sums of what others wrote.

Copies are bit for bit. A reader waits for an event of the writer; sums are in device order, so every device that sums
the same partials has the same bits.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.operator import COMMUNICATION, define

__all__ = ["COMM"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _copy(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    source, *targets = args
    for target in targets:
        target[:] = source


def _reduce(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    partials, residual, out = args
    total = partials[0].copy()
    for partial in partials[1:]:
        total += partial
    out[0] = residual[0] + total


COMM = (
    define(
        "put",
        ("source any [r,c]", ">target any remote [r,c]"),
        (),
        "",
        _copy,
        flops="0",
        warp_roles=COMMUNICATION,
        cpu="memory.copy",
    ),
    define(
        "broadcast",
        ("source any [r,c]", ">target* any remote [r,c]"),
        (),
        "",
        _copy,
        flops="0",
        warp_roles=COMMUNICATION,
    ),
    define(
        "all_gather",
        ("part any [r,c]", ">whole* any remote [r,c]"),
        (),
        "",
        _copy,
        flops="0",
        warp_roles=COMMUNICATION,
    ),
    define(
        "all_reduce_sum",
        ("partials f32 [p,rows]", "residual f32 [1,rows]", ">out f32 [1,rows]"),
        (),
        "values",
        _reduce,
        flops="p*rows*M",
    ),
)
"""put: one box to one device. broadcast: one device's box to the same box of each other's buffer (one target a device).

all_gather: one device's share of it: its part, into its box of everyone's buffer.
all_reduce_sum: the sum of partials that an all_gather brought, row d from device d, then the residual.
"""
