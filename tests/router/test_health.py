"""The circuit breaker: pauses that grow, one trial at a time, and nothing that outlives an answer."""

import pytest

from router.health import FIRST_S, LAST_S, Health


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_pauses_double_up_to_a_bound(clock: Clock) -> None:
    health = Health(clock)
    pauses = []
    for _ in range(12):
        health.failed("refused")
        start = clock.now
        while not health.usable:
            clock.now += FIRST_S / 2
        pauses.append(clock.now - start)
    assert pauses[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert pauses[-1] == LAST_S
    assert (health.healthy, health.last_error) == (False, "refused")
    health.worked()
    assert health.healthy and health.usable and health.failures == 0


def test_failures_at_the_same_time_count_once(clock: Clock) -> None:
    health = Health(clock)
    for _ in range(50):
        health.failed("refused")
    clock.now += FIRST_S
    assert health.usable and health.failures == 1


def test_one_request_tries_and_the_others_wait(clock: Clock) -> None:
    health = Health(clock)
    health.failed("refused")
    clock.now += FIRST_S
    health.taken()
    assert not health.usable
    health.left()
    assert health.usable, "the trial ended without an answer, so the next may try"
    health.taken()
    health.failed("refused")
    assert not health.usable
    clock.now += FIRST_S
    assert not health.usable, "the second pause is longer"
    clock.now += FIRST_S
    assert health.usable


def test_requests_to_a_healthy_server_do_not_wait_for_each_other(clock: Clock) -> None:
    health = Health(clock)
    health.taken()
    health.taken()
    assert health.usable
