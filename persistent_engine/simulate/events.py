"""The discrete-event run of a program: who starts what when.

It keeps what docs/plan.md says a plan means: queues in order, counters that only grow, waits for an epoch's signals,
the step gate with worker 0 as leader. Deterministic: ties go by the order in which things were said.
"""

import heapq
from itertools import count

from persistent_engine.simulate.memory import Memory
from persistent_engine.simulate.program import Program
from persistent_engine.simulate.timeline import NOBODY, Timeline
from speedtier.errors import PlanError

__all__ = ["run"]

_SIGNAL, _DRAW, _DRAWN, _END, _ARRIVE = range(5)


class _Run:
    """State of a run. `k` counts the epochs whose signals an event has had in full."""

    def __init__(self, program: Program, epochs: int) -> None:
        self.program, self.epochs = program, epochs
        self.timeline = Timeline(program, epochs)
        self.heap: list[tuple[float, int, int, int, object]] = []
        self.order = count()
        self.memories = [Memory(rate) for rate in program.bytes_per_s]
        events, workers = len(program.events), len(program.workers)
        self.counters = [0] * events
        self.crossed: list[list[tuple[float, int]]] = [[] for _ in range(events)]
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in range(events)]
        self.epoch, self.place = [1] * workers, [0] * workers
        self.missing, self.ready, self.bound = [0] * workers, [0.0] * workers, [NOBODY] * workers
        self.gates: list[float] = []
        self.at_gate: list[int] = []

    def push(self, time: float, kind: int, who: int, what: object = None) -> None:
        heapq.heappush(self.heap, (time, next(self.order), kind, who, what))

    def job(self, worker: int) -> int:
        return self.program.workers[worker].queue[self.place[worker]]

    def arrive(self, now: float, worker: int) -> None:
        """The worker has come to its next job: look at the waits, go on or stay."""
        queue = self.program.workers[worker].queue
        if self.place[worker] == len(queue):
            self.finish_epoch(now, worker)
            return
        number, epoch, program = queue[self.place[worker]], self.epoch[worker], self.program
        self.timeline.reached(epoch, number, now)
        waits = program.jobs[number].waits
        ready, bound, missing = now + (program.check_s if waits else 0.0), NOBODY, 0
        device = program.workers[worker].device
        for event, lag in waits:
            wanted = epoch - lag
            if wanted <= 0:
                continue
            if len(self.crossed[event]) >= wanted:
                time, by = self.crossed[event][wanted - 1]
                seen = time + program.wait_s + (program.hop_s if program.events[event][1] != device else 0.0)
                if seen > ready:
                    ready, bound = seen, by
            else:
                self.waiting[event].append((wanted, worker))
                missing += 1
        self.missing[worker], self.ready[worker], self.bound[worker] = missing, ready, bound
        if not missing:
            self.begin(worker)

    def begin(self, worker: int) -> None:
        number = self.job(worker)
        job, now = self.program.jobs[number], self.ready[worker]
        self.timeline.began(self.epoch[worker], number, now, self.bound[worker])
        if job.memory_bytes:
            self.push(now + job.fixed_s, _DRAW, worker, job)
        else:
            self.push(now + job.fixed_s + job.least_s, _END, worker)

    def draw(self, now: float, worker: int) -> None:
        job = self.program.jobs[self.job(worker)]
        device = self.program.workers[worker].device
        self.memories[device].start(now, worker, job.memory_bytes, job.memory_bytes / job.least_s)
        self.foresee(device)

    def foresee(self, device: int) -> None:
        memory = self.memories[device]
        following = memory.next()
        if following is not None:
            self.push(following[0], _DRAWN, device, (memory.version, following[1]))

    def drawn(self, now: float, device: int, what: tuple[int, int]) -> None:
        version, worker = what
        if version != self.memories[device].version:
            return  # others came or went since; a newer forecast is in the heap
        self.memories[device].end(now, worker)
        self.foresee(device)
        self.end(now, worker)

    def end(self, now: float, worker: int) -> None:
        number, program = self.job(worker), self.program
        self.timeline.ended(self.epoch[worker], number, now)
        device = program.workers[worker].device
        near: list[tuple[int, int]] = []
        far: list[tuple[int, int]] = []
        for event, amount in program.jobs[number].signals:
            (near if program.events[event][1] == device else far).append((event, amount))
        if near:
            self.push(now + program.signal_s, _SIGNAL, number, near)
        if far:
            self.push(now + program.signal_s + program.hop_s, _SIGNAL, number, far)
        self.place[worker] += 1
        self.arrive(now, worker)

    def signal(self, now: float, number: int, signals: list[tuple[int, int]]) -> None:
        program = self.program
        for event, amount in signals:
            producers, home = program.events[event]
            self.counters[event] += amount
            crossed = self.crossed[event]
            while self.counters[event] >= producers * (len(crossed) + 1):
                crossed.append((now, number))
            if not self.waiting[event]:
                continue
            held = []
            for wanted, worker in self.waiting[event]:
                if len(crossed) < wanted:
                    held.append((wanted, worker))
                    continue
                hop = program.hop_s if program.workers[worker].device != home else 0.0
                seen = now + program.wait_s + hop
                if seen > self.ready[worker]:
                    self.ready[worker], self.bound[worker] = seen, number
                self.missing[worker] -= 1
                if not self.missing[worker]:
                    self.begin(worker)
            self.waiting[event] = held

    def finish_epoch(self, now: float, worker: int) -> None:
        """The step gate: the leader goes on at once, others when the leader has finished the same epoch."""
        epoch = self.epoch[worker]
        if worker:
            if len(self.gates) >= epoch:
                self.pass_gate(now, worker)
            else:
                self.at_gate.append(worker)
            return
        self.gates.append(now)
        self.timeline.steps.append(now)
        self.next_epoch(now, worker)
        passing, self.at_gate = self.at_gate, []
        for other in passing:
            self.pass_gate(now, other)

    def pass_gate(self, now: float, worker: int) -> None:
        program = self.program
        hop = program.hop_s if program.workers[worker].device != program.workers[0].device else 0.0
        opened = self.gates[self.epoch[worker] - 1] + program.signal_s + hop + program.wait_s
        self.next_epoch(max(now + program.check_s, opened), worker)

    def next_epoch(self, time: float, worker: int) -> None:
        if self.epoch[worker] == self.epochs:
            return
        self.epoch[worker] += 1
        self.place[worker] = 0
        self.push(time, _ARRIVE, worker)

    def go(self) -> None:
        for worker in range(len(self.program.workers)):
            self.push(0.0, _ARRIVE, worker)
        while self.heap:
            now, _, kind, who, what = heapq.heappop(self.heap)
            if kind == _SIGNAL:
                self.signal(now, who, what)  # type: ignore[arg-type]
            elif kind == _DRAWN:
                self.drawn(now, who, what)  # type: ignore[arg-type]
            elif kind == _DRAW:
                self.draw(now, who)
            elif kind == _END:
                self.end(now, who)
            else:
                self.arrive(now, who)
        self.check_done()

    def check_done(self) -> None:
        for worker, lane in enumerate(self.program.workers):
            if self.place[worker] < len(lane.queue):
                job = self.program.jobs[self.job(worker)]
                short = [event for event, lag in job.waits if len(self.crossed[event]) < self.epoch[worker] - lag]
                raise PlanError(
                    f"plan stops: worker {worker} waits at task {job.task} ({job.operator}) in epoch"
                    f" {self.epoch[worker]} for event(s) {short}; `speedtier plan check` says why"
                )


def run(program: Program, epochs: int = 3) -> Timeline:
    """Run `program` for `epochs` steps.

    Raises: PlanError when it comes to a stop, naming worker, task and event, or when `epochs` is below 2 (the first
    step starts with nothing in flight and says nothing of the steady state).
    """
    if epochs < 2:
        raise PlanError(f"epochs is {epochs}; simulate at least 2, the first is not steady")
    if not program.workers:
        raise PlanError("the plan has no workers; compile it again")
    state = _Run(program, epochs)
    state.go()
    return state.timeline
