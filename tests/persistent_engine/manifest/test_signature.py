"""Signatures: every task that the compiler makes fits its operator; what does not fit is named."""

import numpy as np
import pytest

from deploy.checkpoints import ensure
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.manifest import OPERATORS, Workload, check_dtypes, cost, number, unify
from persistent_engine.models import read_facts
from persistent_engine.plan import Access, Arg, BufferRow, Dtype, Plan, Task

Boxes = list[tuple[int, int, int, int]]


def _args(plan: Plan, row: np.ndarray) -> np.ndarray:
    return plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]


def _params(plan: Plan, row: np.ndarray) -> list[float]:
    first = row[Task.PARAM_FIRST]
    params: list[float] = plan.params[first : first + row[Task.PARAM_COUNT], 0].tolist()
    return params


@pytest.mark.contract("P2")
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_compiled_task_fits(name: str, workers: int) -> None:
    plan = compile_plan(read_facts(ensure(name)), this_cpu(workers), capacity=100, tile_tokens=32, tiles_per_worker=2)
    assert len(plan.tasks) > 20
    for row in plan.tasks:
        operator, args = OPERATORS[row[Task.OPERATOR]], _args(plan, row)
        boxes = [tuple(arg[Arg.ROW_FIRST : Arg.COL_LAST + 1].tolist()) for arg in args]
        rows = (int(row[Task.ROW_FIRST]), int(row[Task.ROW_LAST]))
        assert unify(operator, boxes, _params(plan, row), rows) is None, operator.name
        dtypes = [Dtype(int(plan.buffers[arg[Arg.BUFFER], BufferRow.DTYPE])) for arg in args]
        assert check_dtypes(operator, dtypes) is None, operator.name
        written = [argument.written for argument in operator.expand(len(args))]
        assert [arg[Arg.ACCESS] == Access.WRITE for arg in args] == written
        found = cost(operator, boxes, dtypes, _params(plan, row), rows, Workload(64))
        assert found.read_bytes + found.written_bytes > 0


SELECT: Boxes = [(0, 1, 0, 8), (0, 1, 0, 8), (0, 1, 0, 2), (0, 1, 0, 2)]
MATVEC: Boxes = [(8, 12, 0, 16), (0, 1, 0, 16), (0, 1, 8, 12)]


@pytest.mark.contract("P2")
@pytest.mark.parametrize(
    ("name", "boxes", "params", "rows", "said"),
    [
        ("matvec", [(8, 12, 0, 16), (0, 1, 0, 8), (0, 1, 8, 12)], [], (8, 12), "x: number of columns is 8, k is 16"),
        ("matvec", MATVEC, [], (8, 13), "weight: number of rows is 4, rows is 5"),
        ("matvec", MATVEC, [1.0], (8, 12), "matvec takes 0 params, not 1"),
        ("matvec", MATVEC[:2], [], (8, 12), "matvec takes 3 arguments, not 2"),
        ("matvec", [(8, 8, 0, 16), *MATVEC[1:]], [], (8, 12), "weight: number of rows is 0"),
        ("matvec", MATVEC, [], (12, 8), "no range"),
        ("embed", [(0, 9, 0, 4), (0, 1, 0, 4)], [], (0, 2), "no range"),
        ("expert_select", SELECT, [0, 1, 1.0, 1], (0, 1), "groups is 0, not a whole number"),
        ("expert_select", SELECT, [4, 5, 1.0, 1], (0, 1), "groups-kept_groups+1 is 0"),
        ("expert_select", SELECT, [8, 1, 1.0, 1], (0, 1), "e/groups-1 is 0"),
        ("expert_select", SELECT, [float("nan"), 1, 1.0, 1], (0, 1), "groups is nan"),
        (
            "expert_gated",
            [(0, 24, 0, 4), (0, 24, 0, 4), (0, 1, 0, 4), (0, 1, 0, 2), (0, 1, 0, 8)],
            [8],
            (12, 20),
            "pass a*width",
        ),
        (
            "expert_gated",
            [(0, 20, 0, 4), (0, 20, 0, 4), (0, 1, 0, 4), (0, 1, 0, 2), (0, 1, 0, 8)],
            [8],
            (0, 8),
            "gate_weight: number of rows is 20, not a multiple of width",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, boxes: Boxes, params: list[float], rows: tuple[int, int], said: str
) -> None:
    found = unify(OPERATORS[number(name)], boxes, params, rows)
    assert found is not None and said in found


@pytest.mark.contract("P2")
def test_dtypes_are_held() -> None:
    gated = OPERATORS[number("gated")]
    same = [Dtype.BF16, Dtype.BF16, Dtype.F32, Dtype.F32]
    assert check_dtypes(gated, same) is None
    assert "another matrix" in str(check_dtypes(gated, [Dtype.F32, *same[1:]]))
    assert "x: dtype is I32" in str(check_dtypes(gated, [*same[:2], Dtype.I32, Dtype.F32]))


@pytest.mark.contract("P2")
def test_random_boxes_and_numbers_are_answered_never_raised() -> None:
    random = np.random.default_rng(0)
    odd = (0.0, -1.0, 0.5, 1.0, 2.0, 3.0, 1e-300, 1e300, float("inf"), float("nan"))
    fitted = 0
    for _ in range(20_000):
        operator = OPERATORS[random.integers(len(OPERATORS))]
        count = max(0, len(operator.arguments) + int(random.integers(-1, 2)))
        ends = random.choice([-1, 0, 1, 1, 1, 2, 2], size=(count, 2)).tolist()
        boxes = [(0, down, 0, across) for down, across in ends]
        params = random.choice(odd, size=max(0, len(operator.params) + int(random.integers(-1, 2)))).tolist()
        rows = (int(random.integers(-1, 3)), int(random.integers(-1, 4)))
        found = unify(operator, boxes, params, rows)
        fitted += found is None
        assert found is None or found
        dtypes = [Dtype(int(one)) for one in random.integers(0, len(Dtype), count)]
        assert check_dtypes(operator, dtypes) != ""
    assert 0 < fitted < 2000
