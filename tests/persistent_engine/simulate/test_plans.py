"""From a compiled plan to a program, to a result, and kernel by kernel."""

import dataclasses

import msgspec
import numpy as np
import pytest

from persistent_engine.devices import DEVICES, device
from persistent_engine.plan import Plan, Task
from persistent_engine.simulate import (
    FixedCosts,
    FormulaCosts,
    Work,
    Workload,
    bounds_of,
    kernels_of,
    machine_from,
    program_of,
    result_of,
    run,
    time_of,
)
from speedtier.errors import PlanError
from tests.persistent_engine.rig import build
from tests.persistent_engine.simulate.programs import MACHINE

QUIET = msgspec.structs.replace(
    MACHINE,
    signal_s=0.0,
    wait_s=0.0,
    check_s=0.0,
    hop_s=0.0,
    task_s=0.0,
    hbm_s=0.0,
    l2_s=0.0,
    drain_s=0.0,
    replay_s=0.0,
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build("tiny-mla", workers=3, tiles_per_worker=2).plan


def test_jobs_are_the_plans_tasks_in_its_queues(plan: Plan) -> None:
    program = program_of(plan, FormulaCosts(), MACHINE, Workload(100))
    assert len(program.jobs) == len(plan.tasks) and [job.task for job in program.jobs] == list(range(len(plan.tasks)))
    owners = {job: worker for worker, lane in enumerate(program.workers) for job in lane.queue}
    assert [owners[task] for task in range(len(plan.tasks))] == plan.tasks[:, Task.WORKER].tolist()
    assert sum(len(job.signals) for job in program.jobs) == len(plan.signals)


def test_a_compiled_plan_runs_within_its_bounds(plan: Plan) -> None:
    program = program_of(plan, FormulaCosts(), MACHINE, Workload(100))
    result, bounds = result_of(run(program)), bounds_of(program)
    assert result.step_s >= bounds.most_s > 0
    for worker in result.workers:
        assert worker.busy_s + worker.waiting_s + worker.idle_s == pytest.approx(result.step_s)
    assert sum(result.operators.values()) == pytest.approx(sum(worker.busy_s for worker in result.workers))
    assert 0 < result.memory_share <= 1


def test_one_worker_without_costs_of_syncing_takes_the_sum() -> None:
    one = build("tiny-gqa").plan
    program = program_of(one, FormulaCosts(), QUIET, Workload(64))
    assert result_of(run(program)).step_s == pytest.approx(sum(job.alone_s for job in program.jobs))


def test_kernels_are_operators_of_a_layer_and_do_all_the_work(plan: Plan) -> None:
    program = kernels_of(plan, FormulaCosts(), MACHINE, Workload(100))
    labels = {(row[Task.LAYER], row[Task.LABEL], row[Task.OPERATOR]) for row in plan.tasks.tolist()}
    assert len(program.jobs) == len(labels)
    whole = program_of(plan, FormulaCosts(), MACHINE, Workload(100))
    assert sum(job.memory_bytes for job in program.jobs) == pytest.approx(sum(job.memory_bytes for job in whole.jobs))
    assert sum(job.flops for job in program.jobs) == pytest.approx(sum(job.flops for job in whole.jobs))
    assert run(program).step_s == pytest.approx(bounds_of(program).queue_s)


@pytest.mark.parametrize("launch", ["graph", "host"])
def test_launching_costs_what_the_machine_says(plan: Plan, launch) -> None:  # type: ignore[no-untyped-def]
    free = run(kernels_of(plan, FixedCosts(), QUIET, Workload(9))).step_s
    costly = msgspec.structs.replace(QUIET, replay_s=2.0, launch_s=4.0)
    kernels = len(kernels_of(plan, FixedCosts(), costly, Workload(9)).jobs)
    assert free == 0.0
    each = 2.0 if launch == "graph" else 4.0
    assert run(kernels_of(plan, FixedCosts(), costly, Workload(9), launch)).step_s == pytest.approx(each * kernels)


def test_a_host_that_launches_faster_than_kernels_run_costs_the_first_only(plan: Plan) -> None:
    works = {task: Work(cache_bytes=40_000.0) for task in range(len(plan.tasks))}
    machine = msgspec.structs.replace(QUIET, launch_s=1e-3)
    alone = sum(job.alone_s for job in kernels_of(plan, FixedCosts(works), QUIET, Workload(9)).jobs)
    assert run(kernels_of(plan, FixedCosts(works), machine, Workload(9), "host")).step_s == pytest.approx(alone + 1e-3)


def test_what_does_not_fit_is_refused_by_name(plan: Plan) -> None:
    with pytest.raises(PlanError, match="context is 100000; this plan is for 1 to 512"):
        program_of(plan, FormulaCosts(), MACHINE, Workload(100_000))
    with pytest.raises(PlanError, match="the plan is for 3 devices, toy has 2"):
        kernels_of(
            dataclasses.replace(plan, devices=np.repeat(plan.devices, 3, axis=0)), FixedCosts(), MACHINE, Workload(9)
        )
    waits = plan.waits.copy()
    waits[0, 1] += 1
    broken = dataclasses.replace(plan, waits=waits)
    with pytest.raises(PlanError, match="speedtier plan check"):
        program_of(broken, FormulaCosts(), MACHINE, Workload(9))


@pytest.mark.parametrize(
    ("work", "fixed", "least", "bound"),
    [
        (Work(memory_bytes=1000.0, memory_trips=1, tiles=4), 0.53125, 1.0, "memory"),
        (Work(memory_bytes=1000.0, memory_trips=1, tiles=1), 0.53125, 2.0, "lanes"),
        (Work(memory_bytes=1000.0, memory_trips=1, tiles=5), 0.53125, 1.0, "memory"),
        (Work(cache_bytes=8000.0, tiles=8, cache_trips=2), 0.28125, 4.0, "lanes"),
        (Work(flops=4000.0, tiles=4), 0.03125, 1.0, "arithmetic"),
        (Work(flops=4000.0, tiles=2, dtype="FP8"), 0.03125, 1.0, "arithmetic"),
        (Work(flops=4000.0, tiles=5), 0.03125, 1.6, "arithmetic"),
        (Work(link_bytes=50.0), 0.03125, 0.5, "link"),
        (Work(), 0.03125, 0.0, "latency"),
    ],
)
def test_a_tasks_time_is_its_slowest_part(work, fixed, least, bound) -> None:  # type: ignore[no-untyped-def]
    assert time_of(work, 4, MACHINE) == (pytest.approx(fixed), pytest.approx(least), bound)


def test_arithmetic_that_a_machine_has_no_rate_for_is_refused() -> None:
    with pytest.raises(PlanError, match="'toy' has no arithmetic rate for 'NVFP4'"):
        time_of(Work(flops=1.0, dtype="NVFP4"), 4, MACHINE)


def test_selection_takes_as_long_as_measured_where_it_was() -> None:
    measured = msgspec.structs.replace(MACHINE, selection=((4096.0, 8e-6), (8192.0, 10e-6)))
    for scores, seconds in ((4096.0, 8e-6), (6144.0, 9e-6), (1e6, 10e-6)):
        _, least, bound = time_of(Work(scores=scores), 4, measured)
        assert (least, bound) == (pytest.approx(seconds), "selection")
    assert time_of(Work(scores=4000.0), 4, measured)[2] != "selection", "nobody measured so few"
    assert time_of(Work(scores=6144.0), 4, MACHINE)[2] != "selection"


def test_in_a_graph_work_that_outlasts_starting_hides_it_and_draining_does_not(plan: Plan) -> None:
    works = {task: Work(cache_bytes=40_000.0, tiles=4) for task in range(len(plan.tasks))}
    alone = [job.alone_s for job in kernels_of(plan, FixedCosts(works), QUIET, Workload(9)).jobs]
    machine = msgspec.structs.replace(QUIET, replay_s=2.0, drain_s=0.5, step_s=3.0)
    taken = run(kernels_of(plan, FixedCosts(works), machine, Workload(9))).step_s
    assert min(alone) > 2.0 and taken == pytest.approx(sum(alone) + 0.5 * len(alone) + 3.0)


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_sheet_makes_a_machine(name: str) -> None:
    sheet = device(name)
    machine = machine_from(sheet)
    assert machine.hbm_bytes_per_s * machine.devices == pytest.approx(sheet.attained_bytes_per_s)
    assert set(machine.flops_per_s) >= {"F32", "BF16", "FP8"} and machine.hbm_s > machine.l2_s > 0
