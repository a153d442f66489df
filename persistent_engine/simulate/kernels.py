"""The conventional baseline: the same plan's work run kernel by kernel, as an engine without resident workers does.

All tasks of a device that belong to one operator of one layer are one kernel, whoever ran them in the plan; kernels of
a device run one after another, each with the whole device, and start with nothing loaded. What crosses devices is
waited for as in the plan. Same work, same machine: the difference is launching, draining, and not loading ahead.
"""

import dataclasses
from collections import defaultdict
from typing import Literal

from persistent_engine.manifest import Workload
from persistent_engine.plan import Plan, Task, Wait, Worker
from persistent_engine.simulate.cost import Costs, Work, time_of
from persistent_engine.simulate.lower import check_fit
from persistent_engine.simulate.machine import Machine
from persistent_engine.simulate.program import Job, Lane, Program
from speedtier.errors import PlanError

__all__ = ["Launch", "kernels_of"]

Launch = Literal["graph", "host"]
"""How kernels start: replayed from a recorded graph, or each launched by a host that runs ahead of its device."""


@dataclasses.dataclass
class _Kernel:
    device: int
    task: int
    operator: str
    work: Work
    after: set[int] = dataclasses.field(default_factory=set)


def _grouped(plan: Plan, costs: Costs, load: Workload) -> list[_Kernel]:
    """Kernels with those that each must follow, by the plan's queues and waits of the same epoch."""
    kernels: list[_Kernel] = []
    numbers: dict[tuple[int, ...], int] = {}
    of: list[int] = []
    tasks, waits, signals = plan.tasks.tolist(), plan.waits.tolist(), plan.signals[:, 0].tolist()
    producers: defaultdict[int, set[int]] = defaultdict(set)
    for task, row in enumerate(tasks):
        key = (row[Task.DEVICE], row[Task.LAYER], row[Task.LABEL], row[Task.OPERATOR])
        work = costs.work(plan, task, load)
        number = numbers.setdefault(key, len(kernels))
        if number == len(kernels):
            kernels.append(_Kernel(row[Task.DEVICE], task, plan.manifest.operators[row[Task.OPERATOR]], work))
        else:
            kernels[number].work += work
        of.append(number)
        first = row[Task.SIGNAL_FIRST]
        for event in signals[first : first + row[Task.SIGNAL_COUNT]]:
            producers[event].add(number)
    for worker in plan.workers.tolist():
        first = worker[Worker.TASK_FIRST]
        for task in range(first, first + worker[Worker.TASK_COUNT]):
            row, after = tasks[task], kernels[of[task]].after
            if task > first:
                after.add(of[task - 1])
            for wait in waits[row[Task.WAIT_FIRST] : row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT]]:
                if not wait[Wait.LAG]:
                    after |= producers[wait[Wait.EVENT]]
    for number, kernel in enumerate(kernels):
        kernel.after.discard(number)
    return kernels


def _ordered(kernels: list[_Kernel], seconds: list[float]) -> list[int]:
    """Kernel numbers in the order in which they could begin if every one had a device, so each after all that it must
    follow; among equals in the plan's order. Every device gets its own part of that, as a stream has it."""
    followers: defaultdict[int, list[int]] = defaultdict(list)
    pending = [len(kernel.after) for kernel in kernels]
    for number, kernel in enumerate(kernels):
        for source in kernel.after:
            followers[source].append(number)
    begins = [(0.0, 0)] * len(kernels)
    ready = [number for number, count in enumerate(pending) if not count]
    order = []
    while ready:
        number = ready.pop()
        order.append(number)
        begin, depth = begins[number]
        for follower in followers[number]:
            begins[follower] = max(begins[follower], (begin + seconds[number], depth + 1))
            pending[follower] -= 1
            if not pending[follower]:
                ready.append(follower)
    if len(order) < len(kernels):
        raise PlanError(
            f"{len(kernels) - len(order)} operators wait for each other's parts and cannot be kernels that run in turn;"
            " compile with one event for each operator"
        )
    return sorted(order, key=lambda number: (begins[number], number))


def kernels_of(plan: Plan, costs: Costs, machine: Machine, load: Workload, launch: Launch = "graph") -> Program:
    """The program of one step, kernel by kernel.

    Raises: PlanError when operators cannot be put in an order, or `load` or `machine` does not fit the plan.
    """
    check_fit(plan, machine, load)
    kernels = _grouped(plan, costs, load)
    times = [time_of(kernel.work, machine.lanes, machine) for kernel in kernels]
    order = _ordered(kernels, [machine.drain_s + fixed + least for fixed, least, _ in times])
    far = {source for kernel in kernels for source in kernel.after if kernels[source].device != kernel.device}
    events = [(1, kernels[source].device) for source in sorted(far)]
    event_of = {source: event for event, source in enumerate(sorted(far))}
    hosts = len(events)
    jobs: list[Job] = []
    queues: defaultdict[int, list[int]] = defaultdict(list)
    leader = kernels[order[-1]].device if order else 0
    for place, number in enumerate(order):
        kernel = kernels[number]
        fixed, least, bound = times[number]
        waits = [(event_of[s], 0) for s in sorted(kernel.after) if kernels[s].device != kernel.device]
        if launch == "host":
            waits.append((hosts + place, 0))
            events.append((1, kernel.device))
        launch_s = machine.drain_s + (0.0 if queues[kernel.device] else machine.step_s)
        if launch == "graph":  # where the work is shorter than starting the next one, that is what counts
            launch_s = max(launch_s, machine.replay_s - fixed - least)
        jobs.append(
            Job(
                task=kernel.task,
                operator=kernel.operator,
                waits=tuple(waits),
                signals=((event_of[number], 1),) if number in far else (),
                fixed_s=fixed - machine.task_s + launch_s,
                memory_bytes=kernel.work.memory_bytes,
                least_s=least,
                bound=bound,
                flops=kernel.work.flops,
                launch_s=launch_s,
            )
        )
        queues[kernel.device].append(place)
    workers = [
        Lane(device, tuple(queues[device])) for device in sorted(queues, key=lambda device: (device != leader, device))
    ]
    if launch == "host":
        workers += [_host(jobs, lane, hosts, machine) for lane in tuple(workers)]
    return Program(
        jobs=jobs,
        workers=workers,
        events=events,
        bytes_per_s=[machine.hbm_bytes_per_s] * len(plan.devices),
        signal_s=machine.signal_s,
        wait_s=machine.wait_s,
        check_s=machine.check_s,
        hop_s=machine.hop_s,
    )


def _host(jobs: list[Job], lane: Lane, hosts: int, machine: Machine) -> Lane:
    """The host thread of a device: starts its kernels one by one, as far ahead as it gets."""
    queue = []
    for kernel in lane.queue:
        queue.append(len(jobs))
        jobs.append(Job(jobs[kernel].task, "launch", (), ((hosts + kernel, 1),), machine.launch_s, 0.0, 0.0, "latency"))
    return Lane(lane.device, tuple(queue))
