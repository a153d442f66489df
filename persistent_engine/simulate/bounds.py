"""Lower bounds of a step that need no simulation: what no schedule of the same plan can beat.

Invariant: `run(program).step_s >= max(bounds)`; a simulation below one of them is wrong.
"""

from collections import defaultdict

import msgspec

from persistent_engine.simulate.program import Program

__all__ = ["Bounds", "bounds_of"]


class Bounds(msgspec.Struct, frozen=True):
    """Seconds. memory: the busiest device's bytes at full rate. queue: the longest queue, each task alone on its
    device. chain: the longest chain of tasks by queue order and waits of the same epoch, with no cost of syncing."""

    memory_s: float
    queue_s: float
    chain_s: float

    @property
    def most_s(self) -> float:
        """The tightest of the three."""
        return max(self.memory_s, self.queue_s, self.chain_s)


def _chain(program: Program) -> float:
    """Longest path, over jobs in an order in which each comes after its queue's earlier ones and its producers."""
    producers: defaultdict[int, list[int]] = defaultdict(list)
    for number, job in enumerate(program.jobs):
        for event, _ in job.signals:
            producers[event].append(number)
    followers: defaultdict[int, list[int]] = defaultdict(list)
    pending = [0] * len(program.jobs)
    for lane in program.workers:
        for place, number in enumerate(lane.queue):
            before = {source for event, lag in program.jobs[number].waits if not lag for source in producers[event]}
            if place:
                before.add(lane.queue[place - 1])
            pending[number] = len(before)
            for source in before:
                followers[source].append(number)
    done = [job.alone_s for job in program.jobs]
    ready = [number for number, count in enumerate(pending) if not count]
    longest = 0.0
    while ready:
        number = ready.pop()
        longest = max(longest, done[number])
        for follower in followers[number]:
            done[follower] = max(done[follower], done[number] + program.jobs[follower].alone_s)
            pending[follower] -= 1
            if not pending[follower]:
                ready.append(follower)
    return longest


def bounds_of(program: Program) -> Bounds:
    """Bounds of one step of `program`, whose order has no cycle."""
    drawn = [0.0] * len(program.bytes_per_s)
    queues = []
    for lane in program.workers:
        drawn[lane.device] += sum(program.jobs[number].memory_bytes for number in lane.queue)
        queues.append(sum(program.jobs[number].alone_s for number in lane.queue))
    memory = max((size / rate for size, rate in zip(drawn, program.bytes_per_s, strict=True)), default=0.0)
    return Bounds(memory, max(queues, default=0.0), _chain(program))
