"""A plan, the work of its tasks and a machine become the program that the simulator runs.

Invariant: job i is task i; queues, waits and signals are the plan's own.
"""

from persistent_engine.manifest import Workload
from persistent_engine.plan import Event, Plan, Task, Wait, Worker
from persistent_engine.simulate.cost import Costs, time_of
from persistent_engine.simulate.machine import Machine
from persistent_engine.simulate.program import Job, Lane, Program
from speedtier.errors import PlanError

__all__ = ["check_fit", "program_of"]


def program_of(plan: Plan, costs: Costs, machine: Machine, load: Workload) -> Program:
    """The program of one step of `load`.

    Raises: PlanError when a wait asks for another count than its event's signals, or when `load` or `machine` does
    not fit the plan.
    """
    check_fit(plan, machine, load)
    events = [(int(row[Event.PRODUCERS]), int(row[Event.DEVICE])) for row in plan.events]
    waits, signals = plan.waits.tolist(), plan.signals[:, 0].tolist()
    for row in waits:
        if row[Wait.COUNT] != events[row[Wait.EVENT]][0]:
            raise PlanError(
                f"a wait asks for {row[Wait.COUNT]} signals of event {row[Wait.EVENT]}, which has"
                f" {events[row[Wait.EVENT]][0]} an epoch; `speedtier plan check` says where"
            )
    workers, jobs = plan.workers.tolist(), []
    for number, row in enumerate(plan.tasks.tolist()):
        first, second = row[Task.WAIT_FIRST], row[Task.SIGNAL_FIRST]
        work = costs.work(plan, number, load)
        fixed, least, bound = time_of(work, workers[row[Task.WORKER]][Worker.LANES], machine)
        jobs.append(
            Job(
                task=number,
                operator=plan.manifest.operators[row[Task.OPERATOR]],
                waits=tuple((w[Wait.EVENT], w[Wait.LAG]) for w in waits[first : first + row[Task.WAIT_COUNT]]),
                signals=tuple((e, row[Task.TILES]) for e in signals[second : second + row[Task.SIGNAL_COUNT]]),
                fixed_s=fixed,
                memory_bytes=work.memory_bytes,
                least_s=least,
                bound=bound,
                flops=work.flops,
            )
        )
    lanes = [
        Lane(row[Worker.DEVICE], tuple(range(row[Worker.TASK_FIRST], row[Worker.TASK_FIRST] + row[Worker.TASK_COUNT])))
        for row in workers
    ]
    return Program(
        jobs=jobs,
        workers=lanes,
        events=events,
        bytes_per_s=[machine.hbm_bytes_per_s] * len(plan.devices),
        signal_s=machine.signal_s,
        wait_s=machine.wait_s,
        check_s=machine.check_s,
        hop_s=machine.hop_s,
    )


def check_fit(plan: Plan, machine: Machine, load: Workload) -> None:
    """Raises: PlanError when the step of `load` is none that the plan is for, or the machine has too few devices."""
    first, last = plan.manifest.bucket
    if not first <= load.context <= last:
        raise PlanError(f"context is {load.context}; this plan is for {first} to {last}, compile one for it")
    if len(plan.devices) > machine.devices:
        raise PlanError(f"the plan is for {len(plan.devices)} devices, {machine.name} has {machine.devices}")
