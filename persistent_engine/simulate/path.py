"""The critical path of a step: what the leader's last task really waited for, back to the step's start.

Invariant: the parts of a path add up to its length, and each second of it has one cause.
"""

import dataclasses
from typing import Literal

from persistent_engine.simulate.program import Job, Program
from persistent_engine.simulate.timeline import NOBODY, Timeline

__all__ = ["Cause", "Link", "critical_path"]

Cause = Literal[
    "memory",
    "lanes",
    "cache",
    "arithmetic",
    "link",
    "selection",
    "latency",
    "shared",
    "launch",
    "signal",
    "hop",
    "wait",
    "gate",
]
"""`Bound`'s causes, and: shared, what other draws on the same memory cost; launch, starting and draining kernels;
signal, from a task's end to its counter's being there; hop, more of that between devices; wait, until that is seen, or
a look at a wait that held; gate, between steps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Seconds of the path that one job of the last epoch is the cause of."""

    job: int
    cause: Cause
    seconds: float


def _own(job: Job, took: float) -> list[tuple[Cause, float]]:
    stream = took - job.fixed_s
    alone = min(job.least_s, stream)
    parts: list[tuple[Cause, float]] = [("shared", stream - alone), (job.bound, alone)]
    parts += [("latency", job.fixed_s - job.launch_s), ("launch", job.launch_s)]
    return [part for part in parts if part[1] > 0]


def _between(program: Program, gap: float) -> list[tuple[Cause, float]]:
    """From a producer's end to the start of a job that it let go on."""
    seen = min(program.wait_s, gap)
    said = min(program.signal_s, gap - seen)
    parts: list[tuple[Cause, float]] = [("wait", seen), ("hop", gap - seen - said), ("signal", said)]
    return [part for part in parts if part[1] > 0]


def critical_path(timeline: Timeline) -> list[Link]:
    """Links of the last epoch's path, from its start to its end."""
    program, last = timeline.program, timeline.epochs - 1
    reach, begin = timeline.reach[last], timeline.begin[last]
    finish, after = timeline.finish[last], timeline.after[last]
    before = {
        job: queue[place - 1] if place else NOBODY
        for queue in (lane.queue for lane in program.workers)
        for place, job in enumerate(queue)
    }
    links: list[Link] = []
    start, current = timeline.steps[last - 1], program.workers[0].queue[-1] if program.workers[0].queue else NOBODY
    while current != NOBODY:
        links += [
            Link(current, cause, seconds)
            for cause, seconds in _own(program.jobs[current], finish[current] - begin[current])
        ]
        source = after[current]
        if source == NOBODY:
            source = before[current]
            if begin[current] > reach[current]:
                links.append(Link(current, "wait", begin[current] - reach[current]))
            if source == NOBODY and reach[current] > start:
                links.append(Link(current, "gate", reach[current] - start))
        elif finish[source] > begin[current] or finish[source] < start:
            links.append(Link(current, "gate", begin[current] - start))  # a credit of the epoch before
            source = NOBODY
        else:
            gap = begin[current] - finish[source]
            links += [Link(current, cause, seconds) for cause, seconds in _between(program, gap)]
        current = source
    return links[::-1]
