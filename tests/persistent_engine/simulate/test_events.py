"""The discrete-event run keeps what a plan means, and no schedule beats the bounds."""

import dataclasses
import time

import pytest
from hypothesis import given, settings

from persistent_engine.simulate import bounds_of, critical_path, result_of, run
from speedtier.errors import PlanError
from tests.persistent_engine.simulate.programs import job, program, programs

SLACK = 1e-9


def test_one_worker_without_sync_costs_takes_the_sum_of_its_tasks() -> None:
    jobs = [job(1.0), job(0.5, memory=500.0), job(0.25)]
    assert run(program(jobs, [[0, 1, 2]])).step_s == pytest.approx(2.25)


def test_a_wait_costs_signal_and_poll_and_a_hop_between_devices() -> None:
    jobs = [job(1.0, signals=[(0, 1)]), job(2.0, waits=[(0, 0)], signals=[(1, 1)]), job(4.0, waits=[(1, 0)])]
    sync = (0.125, 0.25, 0.0625, 8.0)
    near = run(program(jobs, [[0, 2], [1]], [(1, 0), (1, 0)], sync))
    assert near.begin[0] == [0.0, 1.375, 3.75] and near.steps[0] == 7.75
    far = run(program(jobs, [[0, 2], [1]], [(1, 1), (1, 0)], sync, devices=[0, 1]))
    assert far.begin[0] == [0.0, 9.375, 19.75]


def test_a_wait_that_holds_already_costs_one_look() -> None:
    jobs = [job(1.0, signals=[(0, 1)]), job(9.0), job(1.0, waits=[(0, 0)])]
    timeline = run(program(jobs, [[0], [1, 2]], [(1, 0)], (0.0, 0.25, 0.125, 0.0)))
    assert timeline.reach[0][2] == 9.0 and timeline.begin[0][2] == 9.125


def test_an_event_is_full_when_all_its_signals_came() -> None:
    jobs = [job(1.0, signals=[(0, 3)]), job(5.0, signals=[(0, 2)]), job(1.0, waits=[(0, 0)])]
    assert run(program(jobs, [[0, 2], [1]], [(5, 0)])).begin[0][2] == 5.0


def test_a_producer_one_epoch_ahead_stands_in_for_a_late_one_as_counters_let_it() -> None:
    jobs = [job(1.0, signals=[(0, 3)]), job(5.0, signals=[(0, 2)]), job(1.0, waits=[(0, 0)])]
    timeline = run(program(jobs, [[0], [1], [2]], [(5, 0)]))  # unsafe: nobody makes the leader wait
    assert timeline.begin[0][2] == 2.0 and timeline.finish[0][1] == 5.0


def test_a_credit_lets_a_producer_be_one_epoch_ahead_and_no_more() -> None:
    jobs = [job(3.0), job(1.0, waits=[(0, 1)]), job(0.5, signals=[(0, 1)])]
    timeline = run(program(jobs, [[0], [1], [2]], [(1, 0)]), epochs=3)
    assert timeline.begin[0][1] == 0.0 and timeline.begin[1][1] == 3.0


def test_the_step_gate_holds_followers_until_the_leader_is_done() -> None:
    jobs = [job(4.0), job(1.0), job(7.0)]
    timeline = run(program(jobs, [[0], [1], [2]], sync=(0.5, 0.25, 0.125, 0.0)), epochs=2)
    assert timeline.reach[1] == [4.0, 4.75, 7.125]


def test_draws_on_one_memory_share_it_and_on_two_do_not() -> None:
    jobs = [job(memory=1000.0), job(memory=500.0)]
    shared = run(program(jobs, [[0], [1]]))
    assert shared.finish[0] == pytest.approx([1.5, 1.0])
    apart = run(program(jobs, [[0], [1]], devices=[0, 1]))
    assert apart.finish[0] == pytest.approx([1.0, 0.5])


def test_what_a_capped_draw_leaves_goes_to_the_others() -> None:
    jobs = [job(memory=900.0), job(memory=100.0, least=1.0)]
    assert run(program(jobs, [[0], [1]])).finish[0] == pytest.approx([1.0, 1.0])


def test_a_plan_that_stops_is_named_and_too_few_epochs_are_refused() -> None:
    jobs = [job(1.0, waits=[(1, 0)], signals=[(0, 1)]), job(1.0, waits=[(0, 0)], signals=[(1, 1)])]
    with pytest.raises(PlanError, match=r"worker 0 waits at task 0 .* event\(s\) \[1\]"):
        run(program(jobs, [[0], [1]], [(1, 0), (1, 0)]))
    with pytest.raises(PlanError, match="epochs is 1"):
        run(program([job(1.0)], [[0]]), epochs=1)


@given(programs())
@settings(max_examples=150, deadline=None)
def test_no_run_is_shorter_than_the_bounds_and_its_parts_add_up(one) -> None:  # type: ignore[no-untyped-def]
    timeline = run(one)
    bounds, result = bounds_of(one), result_of(timeline)
    leader = sum(one.jobs[number].alone_s for number in one.workers[0].queue)
    assert timeline.steps[0] >= leader - SLACK
    assert max(timeline.finish[0], default=0.0) >= bounds.most_s - SLACK
    if one.workers[0].queue:
        length = timeline.steps[-1] - timeline.steps[-2]
        assert sum(link.seconds for link in critical_path(timeline)) == pytest.approx(length)
        assert sum(result.path.values()) == pytest.approx(length)
    for number in range(len(one.jobs)):
        assert timeline.reach[-1][number] <= timeline.begin[-1][number] <= timeline.finish[-1][number]


@given(programs())
@settings(max_examples=100, deadline=None)
def test_every_run_keeps_queues_and_waits(one) -> None:  # type: ignore[no-untyped-def]
    timeline = run(one)
    for begin, finish in zip(timeline.begin, timeline.finish, strict=True):
        for lane in one.workers:
            for earlier, later in zip(lane.queue, lane.queue[1:], strict=False):
                assert finish[earlier] <= begin[later] + SLACK
        for number, each in enumerate(one.jobs):
            for event, _ in each.waits:
                producers = [n for n, other in enumerate(one.jobs) if event in dict(other.signals)]
                assert all(finish[producer] <= begin[number] + SLACK for producer in producers)


@given(programs(sync=(0.0, 0.0, 0.0, 0.0)))
@settings(max_examples=100, deadline=None)
def test_a_memory_of_twice_the_rate_is_never_slower(one) -> None:  # type: ignore[no-untyped-def]
    twice = dataclasses.replace(one, bytes_per_s=[2 * rate for rate in one.bytes_per_s])
    assert max(run(twice).finish[0]) <= max(run(one).finish[0]) + SLACK


@given(programs())
@settings(max_examples=30, deadline=None)
def test_the_same_program_runs_the_same(one) -> None:  # type: ignore[no-untyped-def]
    first, second = run(one), run(one)
    assert (first.begin, first.finish, first.steps) == (second.begin, second.finish, second.steps)


def test_a_hundred_thousand_tasks_take_well_under_a_minute() -> None:
    workers, jobs, queues = 24, [], [[] for _ in range(24)]  # type: ignore[var-annotated]
    for number in range(100_000):
        stage = number // workers - 1
        before = [(stage * workers + (number + k) % workers, 0) for k in range(3)] if stage >= 0 else []
        jobs.append(job(0.1, before, [(number, 1)], memory=100.0 if number % 2 else 0.0))
        queues[number % workers].append(number)
    events = [(1, number % workers // 3) for number in range(100_000)]
    one = program(jobs, queues, events, (0.1, 0.1, 0.05, 0.2), [worker // 3 for worker in range(workers)])
    started = time.process_time()
    timeline = run(one, 2)
    assert time.process_time() - started < 30
    assert timeline.step_s >= bounds_of(one).chain_s
