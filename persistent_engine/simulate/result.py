"""Result: what a simulated step costs, where its time goes, and how near it is to the machine's limits.

Invariant: busy + waiting + idle of a worker is the step; the parts of the critical path add up to it.
"""

from collections import defaultdict

import msgspec

from persistent_engine.simulate.path import critical_path
from persistent_engine.simulate.timeline import Timeline

__all__ = ["Result", "WorkerTime", "result_of"]


class WorkerTime(msgspec.Struct, frozen=True):
    """Seconds of the last step: in tasks, at waits, and with its queue done (or at the step gate)."""

    worker: int
    device: int
    busy_s: float
    waiting_s: float
    idle_s: float


class Result(msgspec.Struct, frozen=True):
    """step_s: of the steady state. operators: busy seconds of all workers, by operator. path: seconds of the critical
    path by cause; path_operators: the same by operator. bytes_per_s: drawn from all memories. memory_share: of what
    they give. links: tasks on the critical path."""

    step_s: float
    workers: tuple[WorkerTime, ...]
    operators: dict[str, float]
    path: dict[str, float]
    path_operators: dict[str, float]
    links: int
    memory_bytes: float
    flops: float
    bytes_per_s: float
    memory_share: float


def _workers(timeline: Timeline) -> tuple[WorkerTime, ...]:
    last = timeline.epochs - 1
    length = timeline.steps[last] - timeline.steps[last - 1]
    times = []
    for number, lane in enumerate(timeline.program.workers):
        begin, finish, reach = timeline.begin[last], timeline.finish[last], timeline.reach[last]
        busy = sum(finish[job] - begin[job] for job in lane.queue)
        waiting = sum(begin[job] - reach[job] for job in lane.queue)
        times.append(WorkerTime(number, lane.device, busy, waiting, length - busy - waiting))
    return tuple(times)


def result_of(timeline: Timeline) -> Result:
    """What the last step of `timeline` says."""
    program, last = timeline.program, timeline.epochs - 1
    operators: defaultdict[str, float] = defaultdict(float)
    for number, job in enumerate(program.jobs):
        operators[job.operator] += timeline.finish[last][number] - timeline.begin[last][number]
    causes: defaultdict[str, float] = defaultdict(float)
    on_path: defaultdict[str, float] = defaultdict(float)
    links = critical_path(timeline)
    for link in links:
        causes[link.cause] += link.seconds
        on_path[program.jobs[link.job].operator] += link.seconds
    moved = sum(job.memory_bytes for job in program.jobs)
    rate = moved / timeline.step_s if timeline.step_s else 0.0
    return Result(
        step_s=timeline.step_s,
        workers=_workers(timeline),
        operators=dict(sorted(operators.items(), key=lambda item: -item[1])),
        path=dict(sorted(causes.items(), key=lambda item: -item[1])),
        path_operators=dict(sorted(on_path.items(), key=lambda item: -item[1])),
        links=len({link.job for link in links}),
        memory_bytes=moved,
        flops=sum(job.flops for job in program.jobs),
        bytes_per_s=rate,
        memory_share=rate / sum(program.bytes_per_s),
    )
