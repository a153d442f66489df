"""Work of a plan's tasks: what the formulas of their operators say, sorted by who serves it."""

import dataclasses

import msgspec
import pytest

from persistent_engine.manifest import OPERATORS, Workload, cost, number
from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Plan, Task, Worker
from persistent_engine.simulate import FormulaCosts
from speedtier.errors import PlanError
from tests.persistent_engine.rig import build


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build("tiny-mla", workers=3, tiles_per_worker=2).plan


def tasks(plan: Plan, operator: str) -> list[int]:
    return [task for task, row in enumerate(plan.tasks) if row[Task.OPERATOR] == number(operator)]


@pytest.mark.parametrize("load", [Workload(100), Workload(300, 2, 4)])
def test_nothing_that_a_formula_counts_is_lost(plan: Plan, load: Workload) -> None:
    costs = FormulaCosts()
    for task, row in enumerate(plan.tasks.tolist()):
        args = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]].tolist()
        dtypes = [Dtype(int(plan.buffers[a[Arg.BUFFER], BufferRow.DTYPE])) for a in args]
        params = plan.params[row[Task.PARAM_FIRST] : row[Task.PARAM_FIRST] + row[Task.PARAM_COUNT], 0].tolist()
        boxes = [tuple(a[Arg.ROW_FIRST : Arg.COL_LAST + 1]) for a in args]
        span = (row[Task.ROW_FIRST], row[Task.ROW_LAST])
        wanted = cost(OPERATORS[row[Task.OPERATOR]], boxes, dtypes, params, span, load)
        work = costs.work(plan, task, load)
        assert work.flops == wanted.flops
        assert work.memory_bytes + work.cache_bytes == pytest.approx(sum(wanted.bytes))
        assert work.link_bytes == 0 and work.tiles == row[Task.TILES]


def test_weights_come_from_memory_and_activations_from_the_cache(plan: Plan) -> None:
    task = tasks(plan, "matvec")[0]
    row = plan.tasks[task].tolist()
    weight = plan.args[row[Task.ARG_FIRST]].tolist()
    assert plan.buffers[weight[Arg.BUFFER], BufferRow.KIND] == BufferKind.WEIGHT
    rows, cols = weight[Arg.ROW_LAST] - weight[Arg.ROW_FIRST], weight[Arg.COL_LAST] - weight[Arg.COL_FIRST]
    work = FormulaCosts().work(plan, task, Workload(9))
    assert work.memory_bytes == rows * cols * 4 and work.cache_bytes == 4 * (rows + cols)
    assert (work.memory_trips, work.cache_trips, work.dtype) == (1, 0, "F32")


def test_what_is_pointed_at_costs_a_trip_more_than_what_is_not(plan: Plan) -> None:
    work = FormulaCosts().work(plan, tasks(plan, "expert_gated")[0], Workload(9))
    assert (work.memory_trips, work.cache_trips) == (1, 1)
    work = FormulaCosts().work(plan, tasks(plan, "rmsnorm")[0], Workload(9))
    assert work.memory_bytes > 0  # its weight; a norm that reads activations alone would take a cache trip


def test_more_tokens_read_more_experts_but_no_more_than_there_are(plan: Plan) -> None:
    task, costs = tasks(plan, "expert_gated")[0], FormulaCosts()
    sizes = [costs.work(plan, task, Workload(100, 1, tokens)).memory_bytes for tokens in (1, 2, 4, 4000)]
    assert sizes == sorted(sizes) and sizes[1] < 2 * sizes[0]
    row = plan.tasks[task].tolist()
    ids = plan.args[row[Task.ARG_FIRST] + 3].tolist()
    weight = plan.args[row[Task.ARG_FIRST]].tolist()
    experts = (weight[Arg.ROW_LAST] - weight[Arg.ROW_FIRST]) / plan.params[row[Task.PARAM_FIRST], 0]
    assert sizes[3] / sizes[0] == pytest.approx(experts / (ids[Arg.COL_LAST] - ids[Arg.COL_FIRST]))


def test_what_is_on_another_device_goes_over_the_link(plan: Plan) -> None:
    task = tasks(plan, "rmsnorm")[0]
    row, buffers = plan.tasks[task].tolist(), plan.buffers.copy()
    out = plan.args[row[Task.ARG_FIRST] + 2].tolist()
    buffers[out[Arg.BUFFER], BufferRow.DEVICE] = 1
    moved = dataclasses.replace(plan, buffers=buffers)
    near, far = FormulaCosts().work(plan, task, Workload(9)), FormulaCosts().work(moved, task, Workload(9))
    size = 4.0 * (out[Arg.COL_LAST] - out[Arg.COL_FIRST])
    assert far.link_bytes == size and far.cache_bytes == near.cache_bytes - size


def test_arguments_that_do_not_fit_and_operators_that_nobody_knows_are_refused(plan: Plan) -> None:
    args = plan.args.copy()
    task = tasks(plan, "rmsnorm")[0]
    args[plan.tasks[task, Task.ARG_FIRST], Arg.COL_LAST] -= 1
    with pytest.raises(PlanError, match=rf"task {task}: .*columns"):
        FormulaCosts().work(dataclasses.replace(plan, args=args), task, Workload(9))
    manifest = msgspec.structs.replace(plan.manifest, operators=("guess", *plan.manifest.operators[1:]))
    with pytest.raises(PlanError, match="operators guess are not in the manifest"):
        FormulaCosts().work(dataclasses.replace(plan, manifest=manifest), task, Workload(9))


def test_a_task_that_drafts_runs_one_token_whatever_the_step_verifies(plan: Plan) -> None:
    task = tasks(plan, "matvec")[0]
    names = list(plan.manifest.names)
    names[plan.tasks[task, Task.LABEL]] = "draft.0.q"
    drafting = dataclasses.replace(plan, manifest=msgspec.structs.replace(plan.manifest, names=tuple(names)))
    four, one = Workload(100, 2, 4), Workload(100, 2, 1)
    assert FormulaCosts().work(drafting, task, four) == FormulaCosts().work(plan, task, one)
    assert FormulaCosts().work(plan, task, four) != FormulaCosts().work(plan, task, one)


def test_what_every_tile_needs_is_read_by_each_lane_and_from_memory_once(plan: Plan) -> None:
    task = tasks(plan, "matvec")[0]
    row, changed, workers = plan.tasks[task].tolist(), plan.tasks.copy(), plan.workers.copy()
    changed[task, Task.TILES] = 16
    workers[row[Task.WORKER], Worker.LANES] = 10
    wide = dataclasses.replace(plan, tasks=changed, workers=workers)
    one, many = FormulaCosts().work(plan, task, Workload(9)), FormulaCosts().work(wide, task, Workload(9))
    x = plan.args[row[Task.ARG_FIRST] + 1].tolist()
    assert many.memory_bytes == one.memory_bytes
    assert many.cache_bytes - one.cache_bytes == 9 * 4 * (x[Arg.COL_LAST] - x[Arg.COL_FIRST])
