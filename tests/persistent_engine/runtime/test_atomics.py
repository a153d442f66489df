"""Litmus tests of the atomic words that everything resident leans on."""

import threading
import time

import numba
import numpy as np

from persistent_engine.runtime.cpu.kernels.atomics import add, clock_ns, load, pause, raise_word, sleep_on, store

ROUNDS = 20_000


@numba.njit(nogil=True)
def _ping(words: np.ndarray, rounds: int, mine: int) -> None:
    """Two threads alternate: a load that is hoisted, or a store that is not seen, never ends."""
    for turn in range(rounds):
        while load(words, 0) != 2 * turn + mine:
            pause()
        store(words, 0, 2 * turn + mine + 1)


@numba.njit(nogil=True)
def _produce(flag: np.ndarray, data: np.ndarray, rounds: int) -> None:
    for turn in range(1, rounds + 1):
        while load(flag, 0) != 2 * (turn - 1):
            pause()
        for i in range(data.size):
            data[i] = turn
        store(flag, 0, 2 * turn - 1)


@numba.njit(nogil=True)
def _consume(flag: np.ndarray, data: np.ndarray, rounds: int) -> int:
    """Counts data that was older than the flag which published it (message passing)."""
    stale = 0
    for turn in range(1, rounds + 1):
        while load(flag, 0) != 2 * turn - 1:
            pause()
        for i in range(data.size):
            stale += data[i] != turn
        store(flag, 0, 2 * turn)
    return stale


@numba.njit(nogil=True)
def _count(words: np.ndarray, rounds: int) -> None:
    for _ in range(rounds):
        add(words, 0, 1)


@numba.njit(nogil=True)
def _sleep(words: np.ndarray) -> None:
    while load(words, 0) == 0:
        sleep_on(words, 0, 0)


def _both(*calls: tuple[object, ...]) -> list[object]:
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        function, *args = calls[place]
        results[place] = function(*args)  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_two_threads_alternate() -> None:
    words = np.zeros(8, np.int64)
    _both((_ping, words, ROUNDS, 0), (_ping, words, ROUNDS, 1))
    assert words[0] == 2 * ROUNDS


def test_message_passing_is_never_stale() -> None:
    flag, data = np.zeros(8, np.int64), np.zeros(64, np.int64)
    assert _both((_produce, flag, data, ROUNDS), (_consume, flag, data, ROUNDS))[1] == 0


def test_no_increment_is_lost() -> None:
    words = np.zeros(8, np.int64)
    _both(*[(_count, words, ROUNDS)] * 3)
    assert words[0] == 3 * ROUNDS


def test_a_sleeper_is_woken_and_the_clock_is_pythons() -> None:
    words, scratch = np.zeros(8, np.int64), np.zeros(2, np.int64)
    thread = threading.Thread(target=_sleep, args=(words,))
    thread.start()
    time.sleep(0.05)
    raise_word(words, 0, 1)
    thread.join(timeout=30)
    assert not thread.is_alive()
    before = time.monotonic_ns()
    assert before <= clock_ns(scratch) <= time.monotonic_ns()
