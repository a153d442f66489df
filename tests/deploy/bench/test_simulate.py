"""Points of `speedtier bench simulate`: one plan a bucket, rates from steps, a report that holds what was simulated."""

import pytest

from deploy.bench.simulate.points import COSTS, Points
from persistent_engine.plan import Plan
from persistent_engine.simulate import FormulaCosts, Workload, program_of, run
from speedtier.errors import PlanError
from tests.persistent_engine.rig import build
from tests.persistent_engine.simulate.programs import MACHINE


@pytest.fixture
def asked() -> list[tuple[int, int, int]]:
    return []


@pytest.fixture
def points(asked: list[tuple[int, int, int]]) -> Points:
    def compiled(context: int, batch: int, depth: int) -> Plan:
        asked.append((context, batch, depth))
        return build("tiny-mla", workers=2, capacity=context).plan

    return Points(compiled, MACHINE, (64, 256))


def test_a_plan_is_compiled_once_for_each_bucket_batch_and_depth(points: Points, asked) -> None:  # type: ignore[no-untyped-def]
    for context, depth, batch in ((10, 0, 1), (63, 0, 1), (64, 0, 1), (200, 0, 1), (10, 3, 2), (20, 3, 2)):
        points.point(context, depth, 1.0, batch)
    assert asked == [(64, 1, 0), (256, 1, 0), (64, 2, 3)]
    with pytest.raises(PlanError, match="context is 257; the largest bucket has 256"):
        points.point(256, 0, 1.0)


def test_a_rate_is_committed_tokens_by_step(points: Points) -> None:
    point = points.point(100, 3, 3.2, 2)
    program = program_of(points.plan(104, 2, 3), FormulaCosts(), MACHINE, Workload(104, 2, 4))
    assert point.rate == pytest.approx(3.2 / run(program).step_s)
    assert point.result.step_s >= point.bound_s
    assert point.kernel_rate("graph") == pytest.approx(3.2 / point.kernels["graph"].step_s)
    assert point.kernel_rate("host") <= point.kernel_rate("graph")


def test_no_cost_makes_a_step_shorter_when_it_is_doubled(points: Points) -> None:
    longer = points.doubled(100)
    assert set(longer) == set(COSTS) and all(-1e-9 <= more <= 1 + 1e-9 for more in longer.values())
    assert max(longer.values()) > 0.01
