"""The critical path names the cause of each second of a step."""

import pytest

from persistent_engine.simulate import critical_path, run
from tests.persistent_engine.simulate.programs import job, program


def causes(one):  # type: ignore[no-untyped-def]
    return [(link.job, link.cause, pytest.approx(link.seconds)) for link in critical_path(run(one, 2))]


def test_from_task_to_task_over_devices() -> None:
    jobs = [job(1.0, signals=[(0, 1)]), job(2.0, waits=[(0, 0)], signals=[(1, 1)]), job(4.0, waits=[(1, 0)])]
    one = program(jobs, [[0, 2], [1]], [(1, 1), (1, 0)], (0.125, 0.25, 0.0625, 8.0), devices=[0, 1])
    between = [("signal", 0.125), ("hop", 8.0), ("wait", 0.25)]
    wanted = [(0, "latency", 1.0), *((1, *part) for part in between), (1, "latency", 2.0)]
    assert causes(one) == [*wanted, *((2, *part) for part in between), (2, "latency", 4.0)]


def test_sharing_a_memory_is_told_apart_from_reading_it() -> None:
    jobs = [job(0.5, memory=1000.0), job(0.5, memory=1000.0, signals=[(0, 1)]), job(1.0, waits=[(0, 0)])]
    one = program(jobs, [[0, 2], [1]], [(1, 0)])
    assert sum(link.seconds for link in critical_path(run(one, 2)) if link.cause == "shared") == pytest.approx(1.0)


def test_a_wait_that_held_is_a_look() -> None:
    jobs = [job(1.0, signals=[(0, 1)]), job(9.0), job(1.0, waits=[(0, 0)])]
    one = program(jobs, [[1, 2], [0]], [(1, 0)], (0.0, 0.25, 0.125, 0.0))
    assert causes(one) == [(1, "latency", 9.0), (2, "wait", 0.125), (2, "latency", 1.0)]


def test_a_follower_that_starts_a_step_does_so_after_the_gate() -> None:
    jobs = [job(3.0, signals=[(0, 1)]), job(1.0, waits=[(0, 0)])]
    one = program(jobs, [[1], [0]], [(1, 0)], (0.5, 0.25, 0.0, 0.0))
    links = causes(one)
    assert links[0] == (0, "gate", 0.75) and [cause for _, cause, _ in links[1:]] == [
        "latency",
        "signal",
        "wait",
        "latency",
    ]


def test_a_credit_of_the_step_before_ends_the_path() -> None:
    jobs = [job(1.0), job(0.5, waits=[(0, 1)], signals=[(1, 1)]), job(2.0, waits=[(1, 0)], signals=[(0, 1)])]
    one = program(jobs, [[0, 2], [1]], [(1, 0), (1, 0)], (4.0, 1.0, 0.0, 0.0))
    links = critical_path(run(one, 3))
    assert links[0].cause == "gate" and sum(link.seconds for link in links) == pytest.approx(run(one, 3).step_s)
