"""Pairs of boxes that overlap, against looking at every pair."""

import numpy as np
import pytest

from persistent_engine.check.overlap import overlaps
from persistent_engine.check.view import View
from persistent_engine.plan import Arg
from tests.mutation.plan.built import two_devices
from tests.mutation.plan.tables import Tables


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("block", [1, 7, 1 << 21])
def test_every_pair_is_found_once_whatever_the_block(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    count = 60
    args = np.zeros((count, Arg.WIDTH), dtype=np.int32)
    args[:, Arg.BUFFER] = rng.integers(0, 3, count)
    for first, last in ((Arg.ROW_FIRST, Arg.ROW_LAST), (Arg.COL_FIRST, Arg.COL_LAST)):
        args[:, first] = rng.integers(0, 12, count)
        args[:, last] = args[:, first] + rng.integers(1, 6, count)
    tables = Tables(two_devices())
    tables.args = args
    view = View(tables.plan())
    left, right = np.arange(0, count, 2), np.arange(0, count, 3)
    found = [pair for one, other in overlaps(view, left, right, block) for pair in zip(one, other, strict=True)]

    def meet(one: np.ndarray, other: np.ndarray) -> bool:
        axes = ((Arg.ROW_FIRST, Arg.ROW_LAST), (Arg.COL_FIRST, Arg.COL_LAST))
        return bool(one[0] == other[0]) and all(one[a] < other[b] and other[a] < one[b] for a, b in axes)

    wanted = [(one, other) for one in left for other in right if meet(args[one], args[other])]
    assert sorted(found) == sorted(wanted)
    assert len(set(found)) == len(found)
