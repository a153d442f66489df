"""The resident loop: what each worker runs from start to stop, without Python.

Invariant: a worker leaves a wait by its condition, by STOP or ABORT, or by its deadline with a report; never otherwise.
Worker 0 leads: it takes requests, opens each step by raising GO, samples, and publishes tokens.
"""

import numpy as np

from persistent_engine.plan import Register, Task, Wait
from persistent_engine.runtime.cpu.control import LINE, Hang, Reason, Request, Word
from persistent_engine.runtime.cpu.jit import kernel
from persistent_engine.runtime.cpu.kernels import run_task
from persistent_engine.runtime.cpu.kernels.atomics import (
    add,
    clock_ns,
    load,
    notify,
    pause,
    sleep_on,
    store,
    wake,
    yield_core,
)

__all__ = ["follow", "lead"]

GO, SUBMIT, CANCEL, STOP = int(Word.GO), int(Word.SUBMIT), int(Word.CANCEL), int(Word.STOP)
TAIL, DONE, ABORT, SLEEPERS = int(Word.TAIL), int(Word.DONE), int(Word.ABORT), int(Word.SLEEPERS)
READY = int(Word.READY)
OPERATOR, ROW_FIRST, ROW_LAST = int(Task.OPERATOR), int(Task.ROW_FIRST), int(Task.ROW_LAST)
WAIT_FIRST, WAIT_COUNT = int(Task.WAIT_FIRST), int(Task.WAIT_COUNT)
TILES = int(Task.TILES)
SIGNAL_FIRST, SIGNAL_COUNT = int(Task.SIGNAL_FIRST), int(Task.SIGNAL_COUNT)
EVENT, COUNT, LAG = int(Wait.EVENT), int(Wait.COUNT), int(Wait.LAG)
HANG = (int(Hang.WORKER), int(Hang.TASK), int(Hang.EVENT), int(Hang.EXPECTED), int(Hang.ACTUAL))
POSITION, TOKEN, NEXT = int(Register.POSITION), int(Register.TOKEN), int(Register.NEXT)
TOP_K, SEED = int(Register.TOP_K), int(Register.SEED)
R_POSITION, R_TOKEN, R_MOST = int(Request.POSITION), int(Request.TOKEN), int(Request.MOST)
R_SLOT, R_TOP_K, R_SEED, R_STOPS = int(Request.SLOT), int(Request.TOP_K), int(Request.SEED), int(Request.STOPS)
RUNNING, STOPPED, LENGTH = int(Reason.RUNNING), int(Reason.STOP), int(Reason.LENGTH)
CANCELLED, FAILED = int(Reason.CANCELLED), int(Reason.FAILED)

PAUSES_BEFORE_YIELD = 2_000
YIELDS_BEFORE_SLEEP = 50


@kernel
def _await_change(control, word, seen):
    """Wait until control[word] differs from `seen`, or STOP or ABORT: spin, then yield the core, then sleep."""
    for round_ in range(PAUSES_BEFORE_YIELD + YIELDS_BEFORE_SLEEP):
        if load(control, word) != seen or load(control, STOP) or load(control, ABORT):
            return
        if round_ < PAUSES_BEFORE_YIELD:
            pause()
        else:
            yield_core()
    add(control, SLEEPERS, 1)
    while load(control, word) == seen and not load(control, STOP) and not load(control, ABORT):
        sleep_on(control, word, seen)
    add(control, SLEEPERS, -1)


@kernel
def _report(control, hang, me, task, event, expected, actual):
    """The first worker that gives up leaves its report and stops the others."""
    if add(control, ABORT, 1) == 0:
        hang[HANG[0]], hang[HANG[1]], hang[HANG[2]], hang[HANG[3]], hang[HANG[4]] = me, task, event, expected, actual
    wake(control, GO)
    wake(control, SUBMIT)


@kernel
def _await_event(control, hang, counters, event, expected, deadline_ns, me, task, clock):
    """Wait for a counter; gives whether the worker may go on."""
    rounds, started = 0, np.int64(0)
    while load(counters, event * LINE) < expected:
        rounds += 1
        if rounds & 63:
            pause()
            continue
        yield_core()
        if load(control, ABORT) or load(control, STOP):
            return False
        now = clock_ns(clock)
        if started == 0:
            started = now
        if now - started > deadline_ns:
            _report(control, hang, me, task, event, expected, load(counters, event * LINE))
            return False
    return True


@kernel
def _run_queue(me, first, last, epoch, slot, tables, shared, registers, likes, deadline_ns, clock):
    """Run the worker's queue once; gives whether it came to its end."""
    tasks, waits, signals, operands, params = tables
    control, hang, counters = shared
    for task in range(first, last):
        row = tasks[task]
        for i in range(row[WAIT_FIRST], row[WAIT_FIRST] + row[WAIT_COUNT]):
            expected = np.int64(waits[i, COUNT]) * (epoch - waits[i, LAG])
            if not _await_event(control, hang, counters, waits[i, EVENT], expected, deadline_ns, me, task, clock):
                return False
        first_row, last_row = row[ROW_FIRST], row[ROW_LAST]
        run_task(
            row[OPERATOR],
            operands[task],
            params[task],
            first_row,
            last_row,
            slot,
            registers[0],
            registers[1],
            likes[0],
            likes[1],
        )
        for i in range(row[SIGNAL_FIRST], row[SIGNAL_FIRST] + row[SIGNAL_COUNT]):
            add(counters, signals[i, 0] * LINE, row[TILES])
    return True


@kernel
def follow(me, first, last, slots, tables, shared, registers, likes, deadline_ns):
    """Loop of workers 1 and up: one pass over the queue for each step that worker 0 opens."""
    control = shared[0]
    clock, epoch = np.zeros(2, np.int64), np.int64(0)
    add(control, READY, 1)
    while True:
        _await_change(control, GO, epoch)
        if load(control, STOP) or load(control, ABORT):
            return
        epoch += 1
        slot = load(slots, 0)
        if not _run_queue(me, first, last, epoch, slot, tables, shared, registers, likes, deadline_ns, clock):
            return


@kernel
def _ends(token, count, most, request):
    """Reason to end after `token`, the `count`-th of the request."""
    for i in range(request[R_STOPS]):
        if request[R_STOPS + 1 + i] == token:
            return STOPPED
    return LENGTH if count >= most else RUNNING


@kernel
def _decode(
    first, last, epoch, sequence, slots, request, ring, times, descriptor, tables, shared, registers, likes, limits
):
    """Decode one request to its end; gives (epoch, reason)."""
    control, integers = shared[0], registers[0]
    deadline_ns, clock = limits
    store(slots, 0, request[R_SLOT])
    integers[POSITION], integers[TOKEN] = request[R_POSITION], request[R_TOKEN]
    integers[TOP_K], integers[SEED] = request[R_TOP_K], request[R_SEED]
    count, reason = np.int64(0), np.int64(RUNNING)
    while reason == RUNNING:
        if load(control, CANCEL) == sequence or load(control, STOP):
            return epoch, np.int64(CANCELLED)
        epoch += 1
        store(control, GO, epoch)
        if load(control, SLEEPERS) > 0:
            wake(control, GO)
        slot = request[R_SLOT]
        if not _run_queue(0, first, last, epoch, slot, tables, shared, registers, likes, deadline_ns, clock):
            return epoch, np.int64(FAILED)
        ring[count], times[count] = integers[NEXT], clock_ns(clock)
        integers[TOKEN] = integers[NEXT]
        integers[POSITION] += 1
        count += 1
        reason = np.int64(_ends(integers[NEXT], count, request[R_MOST], request))
        store(control, TAIL, count)
        if reason == RUNNING:
            notify(descriptor, clock)
    return epoch, reason


@kernel
def lead(first, last, slots, request, result, ring, times, descriptor, tables, shared, registers, likes, deadline_ns):
    """Loop of worker 0: take a request, decode it, say so, until STOP."""
    control = shared[0]
    clock, epoch, sequence = np.zeros(2, np.int64), np.int64(0), np.int64(0)
    limits = (deadline_ns, clock)
    add(control, READY, 1)
    while True:
        _await_change(control, SUBMIT, sequence)
        if load(control, STOP) or load(control, ABORT):
            return
        sequence = load(control, SUBMIT)
        epoch, reason = _decode(
            first,
            last,
            epoch,
            sequence,
            slots,
            request,
            ring,
            times,
            descriptor,
            tables,
            shared,
            registers,
            likes,
            limits,
        )
        result[0] = reason
        store(control, DONE, sequence)
        notify(descriptor, clock)
        if reason == FAILED:
            return
