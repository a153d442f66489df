"""Where traces come from: a simulated timeline, or the times at which an engine's steps ended.

The CPU engine's control words carry one time for each token, not one for each task, so a measured trace shows whole
steps of the leading worker; an engine that logs tasks fills the same spans.
"""

from collections.abc import Sequence
from itertools import pairwise

from persistent_engine.plan import Device, Plan, Task, WarpRole, Worker
from persistent_engine.simulate import Timeline
from persistent_engine.trace.record import WHOLE_STEP, Span, Trace, Track
from speedtier.errors import PlanError

__all__ = ["measured", "simulated"]


def _tracks(plan: Plan) -> tuple[Track, ...]:
    names = plan.manifest.names
    return tuple(
        Track(
            int(row[Worker.DEVICE]),
            names[plan.devices[row[Worker.DEVICE], Device.NAME]],
            WarpRole(int(row[Worker.WARP_ROLE])).name,
            int(row[Worker.LANES]),
        )
        for row in plan.workers
    )


def simulated(plan: Plan, timeline: Timeline, epochs: int = 1) -> Trace:
    """The last `epochs` epochs of a run of `program_of(plan, ...)`. Raises: PlanError for another's timeline."""
    if len(timeline.program.jobs) != len(plan.tasks):
        jobs = len(timeline.program.jobs)
        raise PlanError(
            f"the timeline has {jobs} jobs and the plan {len(plan.tasks)} tasks; trace the plan that was run"
        )
    first = max(0, timeline.epochs - epochs)
    start = timeline.steps[first - 1] if first else 0.0
    names, spans = plan.manifest.names, []
    for epoch in range(first, timeline.epochs):
        reach, begin, finish = timeline.reach[epoch], timeline.begin[epoch], timeline.finish[epoch]
        for task, row in enumerate(plan.tasks.tolist()):
            spans.append(
                Span(
                    worker=row[Task.WORKER],
                    task=task,
                    epoch=epoch + 1,
                    operator=plan.manifest.operators[row[Task.OPERATOR]],
                    label=names[row[Task.LABEL]],
                    layer=row[Task.LAYER],
                    reached_s=reach[task] - start,
                    began_s=begin[task] - start,
                    ended_s=finish[task] - start,
                    after=timeline.after[epoch][task],
                )
            )
    return Trace("simulated", plan.manifest.model, plan.manifest.device, plan.digest, _tracks(plan), tuple(spans))


def measured(plan: Plan, ended_s: Sequence[float], started_s: float) -> Trace:
    """Whole steps of a real run. started_s: when the first began; ended_s: when each token was there, in one clock.

    Raises: PlanError when times go backwards.
    """
    times = [started_s, *ended_s]
    spans = []
    for epoch, (begin, end) in enumerate(pairwise(times), start=1):
        if end < begin:
            raise PlanError(f"step {epoch} ends at {end} and began at {begin}; give times of one clock, in order")
        at = begin - started_s
        spans.append(Span(0, WHOLE_STEP, epoch, "step", f"step {epoch}", -1, at, at, end - started_s))
    return Trace("measured", plan.manifest.model, plan.manifest.device, plan.digest, _tracks(plan), tuple(spans))
