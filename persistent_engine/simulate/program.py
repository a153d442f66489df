"""Program: what the simulator runs. Queues of timed jobs that wait on counters and add to them.

A plan becomes one with `program_of`; the same plan run kernel by kernel becomes one with `kernels_of`.
Invariant: a program has the plan's order (queues, waits, step gate) and nothing else of it but times.
"""

import dataclasses
from typing import Literal

__all__ = ["Bound", "Job", "Lane", "Program", "Signal", "Wait"]

Bound = Literal["memory", "lanes", "cache", "arithmetic", "link", "selection", "latency"]
"""What a job's time is made of when nobody shares the memory with it."""

Wait = tuple[int, int]
"""Event, and how many epochs old its signals may be."""

Signal = tuple[int, int]
"""Event, and how much is added to its counter."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One task (or kernel) of each epoch.

    fixed_s: before its first byte moves. memory_bytes: drawn from the device's memory, shared with others. least_s:
    from first byte to last when it has the memory to itself; memory_bytes / least_s is the most it draws. bound: what
    least_s comes from. task: row of the plan's tasks, the first where several became one job. launch_s: how much of
    fixed_s is starting a kernel and waiting for the one before it to drain.
    """

    task: int
    operator: str
    waits: tuple[Wait, ...]
    signals: tuple[Signal, ...]
    fixed_s: float
    memory_bytes: float
    least_s: float
    bound: Bound
    flops: float = 0.0
    launch_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """Time from start to end when nobody shares the memory."""
        return self.fixed_s + self.least_s


@dataclasses.dataclass(frozen=True, slots=True)
class Lane:
    """A worker: the device whose memory it draws on, and its queue of job numbers."""

    device: int
    queue: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """jobs by number. events: (signals per epoch, device of the counter). devices: bytes per second of each memory.

    signal_s, wait_s, check_s, hop_s: as in `Machine`.
    """

    jobs: list[Job]
    workers: list[Lane]
    events: list[tuple[int, int]]
    bytes_per_s: list[float]
    signal_s: float
    wait_s: float
    check_s: float
    hop_s: float
