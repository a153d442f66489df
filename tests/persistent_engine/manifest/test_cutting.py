"""Signatures say how a task is cut: the parts of a cut task, put together, are the whole task's outputs."""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from persistent_engine.manifest import OPERATORS, Operator, unify
from persistent_engine.manifest.formula import compile_formula
from persistent_engine.manifest.signature import Argument
from persistent_engine.plan import Register

POSITION = 9
SIZES: dict[str, dict[str, float]] = {
    "matvec": {"rows": 12, "k": 16},
    "matvec_add": {"rows": 12, "k": 16},
    "gated": {"rows": 12, "k": 16},
    "mla_query": {"rows": 6, "nope": 4, "rope": 2, "rank": 8, "value": 3, "t": 16},
    "mla_attend": {"rows": 6, "rank": 8, "rope": 2, "t": 16, "scale": 0.3},
    "mla_value": {"rows": 6, "nope": 4, "value": 3, "rank": 8},
    "gqa_query": {"rows": 6, "d": 8, "t": 16, "eps": 1e-6, "normed": 1},
    "expert_gated": {"rows": 12, "a": 2, "e": 4, "width": 6, "k": 8},
    "expert_down_add": {"rows": 6, "a": 2, "e": 4, "width": 6, "k": 8},
    "index_query": {"rows": 6, "d": 8, "rope": 4, "t": 16, "interleaved": 1},
    "index_scores": {"rows": 16, "h": 3, "d": 8, "t": 16, "scale": 0.5},
    "mla_attend_sparse": {"rows": 6, "rank": 8, "rope": 2, "t": 16, "s": 5, "scale": 0.3},
    "mla_attend_part": {"rows": 4, "h": 3, "rank": 8, "rope": 2, "t": 16, "scale": 0.3, "tokens": 4},
    "mla_attend_sparse_part": {"rows": 3, "h": 3, "rank": 8, "rope": 2, "t": 16, "s": 6, "scale": 0.3, "tokens": 2},
    "mla_combine": {"rows": 6, "p": 3, "rank": 8},
    "all_reduce_sum": {"rows": 12, "p": 3},
}
"""By operator: its params and free sizes. gqa_attend takes its heads from its boxes, whatever the range."""

CUTTABLE = [operator for operator in OPERATORS if operator.rows and operator.name != "gqa_attend"]


def shape(argument: Argument, sizes: Mapping[str, float]) -> tuple[int, int]:
    rows, cols = (int(compile_formula(text)(sizes)) for text in (argument.rows, argument.cols))
    return rows, cols


def cut(argument: Argument, sizes: Mapping[str, float], rows: tuple[int, int]) -> tuple[slice, slice]:
    """What of the argument belongs to a part of the range: an axis whose size has `rows` in it is cut with it."""
    whole = shape(argument, sizes)
    found = []
    for text, size in zip((argument.rows, argument.cols), whole, strict=True):
        step = size // int(sizes["rows"])
        follows = "rows" in compile_formula(text).names
        found.append(slice(rows[0] * step, rows[1] * step) if follows else slice(0, size))
    return found[0], found[1]


def draw(operator: Operator, sizes: Mapping[str, float]) -> list[np.ndarray]:
    random, args = np.random.default_rng(3), []
    for argument in operator.arguments:
        size = shape(argument, sizes)
        if argument.dtypes == "i32":
            args.append(random.permutation(4 if operator.name.startswith("expert") else POSITION)[: size[1]][None])
        else:
            args.append(random.normal(size=size).astype(np.float32))
    return args


def run(operator: Operator, args: list[np.ndarray], sizes: Mapping[str, float], rows: tuple[int, int]) -> None:
    boxes = [
        array if argument.dtypes != "state" else array.reshape(-1)
        for argument, array in zip(operator.arguments, args, strict=True)
    ]
    registers: dict[int, float] = {int(Register.POSITION): POSITION, int(Register.TOKEN): 0}
    operator.reference(boxes, [sizes[name] for name in operator.params], rows, registers)


@pytest.mark.contract("E2")
@pytest.mark.parametrize("operator", CUTTABLE, ids=lambda one: str(one.name))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_are_the_whole(operator: Operator, count: int) -> None:
    sizes = SIZES[operator.name]
    end = int(sizes["rows"])
    args = draw(operator, sizes)
    whole = [array.copy() for array in args]
    run(operator, whole, sizes, (0, end))
    parts = [
        np.full_like(array, -7) if one.written else array for one, array in zip(operator.arguments, args, strict=True)
    ]
    edges = [end * part // count for part in range(count + 1)]
    for rows in itertools.pairwise(edges):
        spans = [cut(argument, sizes, rows) for argument in operator.arguments]
        boxes = [(down.start, down.stop, across.start, across.stop) for down, across in spans]
        assert unify(operator, boxes, [sizes[name] for name in operator.params], rows) is None
        run(operator, [array[span] for array, span in zip(parts, spans, strict=True)], sizes, rows)
    for argument, one, other in zip(operator.arguments, whole, parts, strict=True):
        if argument.written and argument.name != "scores":
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6, err_msg=argument.name)
            assert not (one == -7).any()
