"""Resident: the workers of one plan as threads that stay in compiled code, and the calls to steer them.

Invariant (E1): threads enter compiled code once, at `start`, without the GIL, and leave it at `stop`.
"""

import os
import threading
import time

import numpy as np

from persistent_engine.check import verify
from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Event, Plan, Register, Task, Worker
from persistent_engine.runtime.bind import Binding
from persistent_engine.runtime.cpu.control import LINE, WORDS, Hang, Reason, Request, Word
from persistent_engine.runtime.cpu.kernels import FIELDS, MOST_ARGS
from persistent_engine.runtime.cpu.kernels.atomics import raise_word, read_word
from persistent_engine.runtime.cpu.kernels.worker import follow, lead
from persistent_engine.runtime.engine import MOST_STOPS, EngineFailed, Job
from speedtier.errors import PlanError

__all__ = ["Resident"]

MOST_PARAMS = 4


def _check_kernels(plan: Plan) -> None:
    """Raise PlanError unless there is a kernel for every operator and dtype: dispatch itself does not look."""
    for number in np.unique(plan.tasks[:, Task.OPERATOR]).tolist():
        name = plan.manifest.operators[number]
        if number >= len(OPERATORS) or OPERATORS[number].name != name or not OPERATORS[number].cpu:
            raise PlanError(
                f"operator is {name!r}; the CPU engine has no kernel for it: compile the plan for another device"
            )
    kept = plan.buffers[plan.buffers[:, BufferRow.KIND] != BufferKind.ACTIVATION]
    for dtype in np.unique(kept[:, BufferRow.DTYPE]).tolist():
        if dtype not in (Dtype.F32, Dtype.BF16):
            raise PlanError(
                f"dtype of weights is {Dtype(dtype).name}; the CPU engine takes F32 and BF16: compile for it"
            )


def _operands(binding: Binding) -> tuple[np.ndarray, np.ndarray]:
    """Per task: [MOST_ARGS x FIELDS] addresses and box shapes, [MOST_PARAMS] parameters."""
    plan = binding.plan
    operands = np.zeros((len(plan.tasks), MOST_ARGS * FIELDS), np.int64)
    params = np.zeros((len(plan.tasks), MOST_PARAMS), np.float64)
    widths = plan.buffers[plan.args[:, Arg.BUFFER], BufferRow.COLS]
    rows, cols = (plan.args[:, last] - plan.args[:, last - 1] for last in (Arg.ROW_LAST, Arg.COL_LAST))
    if ((rows > 1) & (cols != widths)).any():
        arg = int(np.argmax((rows > 1) & (cols != widths)))
        raise PlanError(
            f"argument {arg} is some columns of several rows; the CPU engine takes whole rows: compile for it"
        )
    for task, row in enumerate(plan.tasks):
        args = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]
        for place, arg in enumerate(args):
            height, width = arg[Arg.ROW_LAST] - arg[Arg.ROW_FIRST], arg[Arg.COL_LAST] - arg[Arg.COL_FIRST]
            operands[task, place * FIELDS : (place + 1) * FIELDS] = (binding.address(arg), height, width)
        values = plan.params[row[Task.PARAM_FIRST] : row[Task.PARAM_FIRST] + row[Task.PARAM_COUNT], 0]
        params[task, : len(values)] = values
    return operands, params


def _like(plan: Plan, kind: BufferKind) -> np.ndarray:
    """An empty array of the dtype of the plan's matrices (more than one row) or state planes."""
    rows = plan.buffers[plan.buffers[:, BufferRow.KIND] == kind]
    brain = bool((rows[:, BufferRow.DTYPE] == Dtype.BF16).any())
    return np.empty(0, np.uint16 if brain else np.float32)


class Resident:
    """Workers of one plan over given slots. Raises: PlanError for a plan without a certificate of its own.

    slots: writable uint8 arrays, each the memory of one slot. After each token and at the end of a request,
    `descriptor` (an eventfd, non-blocking) becomes readable.
    """

    def __init__(self, binding: Binding, slots: list[np.ndarray], deadline_s: float = 10.0) -> None:
        self._binding, self._slots = binding, slots
        plan = binding.plan
        _check_kernels(plan)
        if binding.certificate is None:
            raise PlanError("the plan has no certificate, so nobody has checked it; make one with check.certificate")
        verify(plan, binding.certificate)
        capacity = plan.manifest.capacity
        self.control = np.zeros(WORDS, np.int64)
        self.hang = np.zeros(Hang.WIDTH, np.int64)
        self.counters = np.zeros(max(1, len(plan.events)) * LINE, np.int64)
        self.request = np.zeros(Request.WIDTH + MOST_STOPS, np.int64)
        self.result = np.zeros(1, np.int64)
        self.ring = np.zeros(capacity, np.int64)
        self.times = np.zeros(capacity, np.int64)
        self.integers = np.zeros(Register.COUNT, np.int64)
        self.numbers = np.zeros(Register.COUNT, np.float64)
        self._slot_word = np.zeros(LINE, np.int64)
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        operands, params = _operands(binding)
        tables = (plan.tasks, plan.waits, plan.signals.reshape(-1, 1), operands, params)
        self._tables = tuple(np.ascontiguousarray(table) for table in tables)
        self._likes = (_like(plan, BufferKind.WEIGHT), _like(plan, BufferKind.STATE))
        self._deadline_ns = int(deadline_s * 1e9)
        self._threads: list[threading.Thread] = []
        self._crash: list[str] = []

    def _enter(self, worker: int) -> None:
        row = self._binding.plan.workers[worker]
        first, last = int(row[Worker.TASK_FIRST]), int(row[Worker.TASK_FIRST] + row[Worker.TASK_COUNT])
        shared, registers = (self.control, self.hang, self.counters), (self.integers, self.numbers)
        common = (self._tables, shared, registers, self._likes, self._deadline_ns)
        try:
            if worker == 0:
                mine = (self._slot_word, self.request, self.result, self.ring, self.times, self.descriptor)
                lead(first, last, *mine, *common)
            else:
                follow(worker, first, last, self._slot_word, *common)
        except BaseException as error:  # compilation failed: nobody else would tell
            self._crash.append(f"worker {worker}: {error!r}")
            raise

    def start(self, timeout_s: float = 300.0) -> None:
        """Enter compiled code with every worker (compiles it on a first run). Raises: EngineFailed."""
        for worker in range(len(self._binding.plan.workers)):
            thread = threading.Thread(target=self._enter, args=(worker,), name=f"resident-{worker}", daemon=True)
            self._threads.append(thread)
            thread.start()
        limit = time.monotonic() + timeout_s
        while read_word(self.control, int(Word.READY)) < len(self._threads):
            if self._crash or time.monotonic() > limit:
                self.stop()
                raise EngineFailed("; ".join(self._crash) or f"workers were not resident after {timeout_s} s")
            time.sleep(0.002)

    def submit(self, job: Job) -> int:
        """Hand `job` to the leading worker; gives its sequence number. The caller checked that none is running."""
        request, sampling, vocabulary = self.request, job.sampling, self._binding.plan.manifest.limits["vocabulary"]
        stops = [token for token in sampling.stops if 0 <= token < vocabulary]  # no other can ever come
        request[Request.POSITION], request[Request.TOKEN], request[Request.MOST] = job.position, job.token, job.most
        request[Request.SLOT] = self._slots[job.slot].ctypes.data
        request[Request.TOP_K] = min(sampling.top_k, vocabulary)
        request[Request.SEED] = (sampling.seed + 2**63) % 2**64 - 2**63
        request[Request.STOPS] = len(stops)
        request[Request.STOPS + 1 : Request.STOPS + 1 + len(stops)] = stops
        self.numbers[Register.TEMPERATURE] = sampling.temperature
        self.numbers[Register.TOP_P], self.numbers[Register.MIN_P] = sampling.top_p, sampling.min_p
        sequence = int(read_word(self.control, int(Word.SUBMIT))) + 1
        raise_word(self.control, int(Word.TAIL), 0)
        raise_word(self.control, int(Word.SUBMIT), sequence)
        return sequence

    def cancel(self, sequence: int) -> None:
        """Ask the leading worker to end request `sequence` before its next step."""
        raise_word(self.control, int(Word.CANCEL), sequence)

    def published(self) -> int:
        """How many tokens of the current request stand in `ring` (and their CLOCK_MONOTONIC nanoseconds in `times`)."""
        return int(read_word(self.control, int(Word.TAIL)))

    def finished(self, sequence: int) -> Reason | None:
        """Why request `sequence` ended, or None while it runs."""
        if read_word(self.control, int(Word.DONE)) < sequence:
            return None
        return Reason(int(self.result[0]))

    def failure(self) -> str | None:
        """The report of a hang, or None (E6)."""
        if self._crash:
            return "; ".join(self._crash)
        if not read_word(self.control, int(Word.ABORT)):
            return None
        worker, task, event, expected, actual = (int(value) for value in self.hang)
        plan = self._binding.plan
        names, row = plan.manifest.names, plan.tasks[task]
        producers = [
            f"task {t} ({names[r[Task.LABEL]]}, worker {r[Task.WORKER]})"
            for t, r in enumerate(plan.tasks)
            if event in plan.signals[r[Task.SIGNAL_FIRST] : r[Task.SIGNAL_FIRST] + r[Task.SIGNAL_COUNT], 0]
        ]
        return (
            f"worker {worker} waited too long in task {task} ({names[row[Task.LABEL]]}) for event {event}"
            f" ({names[plan.events[event, Event.NAME]]}): expected {expected}, actual {actual};"
            f" producers: {', '.join(producers)}"
        )

    def stop(self) -> None:
        """Leave compiled code and join the threads; idempotent."""
        for word in (Word.STOP, Word.GO, Word.SUBMIT):
            value = 1 if word is Word.STOP else int(read_word(self.control, int(word))) + 1
            raise_word(self.control, int(word), value)
        for thread in self._threads:
            thread.join(timeout=30)
        self._threads.clear()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
