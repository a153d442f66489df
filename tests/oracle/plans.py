"""Random small plans, some of them right, and the plan files that say the same."""

import dataclasses
import random

import numpy as np

from persistent_engine.manifest import OPERATORS, number
from persistent_engine.plan import TABLES, Access, BufferKind, Dtype, Manifest, Plan, Role, WarpRole, encode
from tests.oracle.explorer import Buffer, Small, Step

__all__ = ["draw", "file_of"]


def draw(seed: int) -> Small:
    """A plan: tasks in an order that works, scheduled as a compiler would, then often spoilt a little."""
    rng = random.Random(seed)
    count, workers = rng.randint(3, 8), rng.choice((2, 2, 3))
    steps = [Step(registers=rng.random() < 0.1, tiles=rng.choice((1, 1, 1, 1, 2))) for _ in range(count)]
    owner = [rng.randrange(workers) for _ in range(count)]
    if rng.random() < 0.85:
        owner[-1] = 0
    plan = Small([[t for t in range(count) if owner[t] == w] for w in range(workers)], steps, [], 0)
    if rng.random() < 0.15:
        _loosen(plan)
    else:
        _touch(plan, rng)
    _connect(plan, owner, rng)
    if rng.random() < 0.5:
        _share_pages(plan, rng)
    if rng.random() < 0.45:
        _spoil(plan, rng)
    return plan


def _touch(plan: Small, rng: random.Random) -> None:
    """Buffers, who writes them, who reads them later."""
    steps, task = plan.steps, 0
    readers: set[int] = set()
    last = len(steps) - 1
    tied = rng.choice((1.0, 1.0, 0.9, 0.5))
    while task < last:
        buffer = len(plan.buffers)
        plan.buffers.append(Buffer(2))
        writers = [task]
        if task + 1 < last and rng.random() < 0.35:
            writers.append(task + 1)
        for part, writer in enumerate(writers):
            steps[writer].touches.append((buffer, part, part + 1 if len(writers) == 2 else 2, True))
        if task + len(writers) <= last:
            for reader in rng.sample(
                range(task + len(writers), last + 1), k=min(rng.randint(0, 2), last - task - len(writers) + 1)
            ):
                lo = rng.choice((0, 0, 1))
                steps[reader].touches.append((buffer, lo, 2, False))
                readers.add(buffer)
        task += len(writers)
    for buffer in set(range(len(plan.buffers))) - readers:
        if rng.random() < tied:
            steps[last].touches.append((buffer, 0, 2, False))
    if rng.random() < 0.4 and last >= 2:
        plan.buffers.append(Buffer(2, state=True))
        users = sorted(rng.sample(range(last + 1), k=rng.randint(2, min(3, last + 1))))
        for place, user in enumerate(users):
            steps[user].touches.append((len(plan.buffers) - 1, 0, 2, place == 0 or rng.random() < 0.2))


def _loosen(plan: Small) -> None:
    """Every task writes what nobody reads: workers drift apart as far as waits and the gate let them."""
    for task, step in enumerate(plan.steps):
        plan.buffers.append(Buffer(2))
        step.touches.append((task, 0, 2, True))
        step.registers = False


def _needed(plan: Small) -> list[set[int]]:
    """For each task, the earlier ones that it must come after."""
    needed: list[set[int]] = [set() for _ in plan.steps]
    for task, step in enumerate(plan.steps):
        for buffer, lo, hi, written in step.touches:
            for other in range(task):
                for b, low, high, w in plan.steps[other].touches:
                    if b == buffer and lo < high and low < hi and (written or w):
                        needed[task].add(other)
    return needed


def _connect(plan: Small, owner: list[int], rng: random.Random) -> None:
    """Events and waits for what is needed; sometimes one event for several producers; sometimes credits."""
    events: dict[tuple[int, ...], int] = {}

    def event(producers: tuple[int, ...]) -> int:
        if producers not in events:
            events[producers] = len(events)
            for producer in producers:
                plan.steps[producer].signals.append(events[producers])
        return events[producers]

    joined = rng.random() < 0.6
    needed = _needed(plan)
    for task, others in enumerate(needed):
        away = tuple(sorted(other for other in others if owner[other] != owner[task]))
        for group in [away] if joined and away else [(other,) for other in away]:
            plan.steps[task].waits.append((event(group), 0))
    for task, others in enumerate(needed):
        for other in others:
            if owner[other] != owner[task] and rng.random() < 0.25:
                plan.steps[other].waits.append((event((task,)), 1))
    if rng.random() < 0.4:  # the last task waits for the end of every queue, as the sampling task does in a real plan
        ends = tuple(queue[-1] for queue in plan.queues if queue and queue[-1] != len(plan.steps) - 1)
        if ends and owner[-1] == 0:
            plan.steps[-1].waits.append((event(ends), 0))
    loose = all(written for step in plan.steps for *_, written in step.touches)
    for _ in range((3 if loose else int(rng.random() < 0.4)) if len(plan.steps) > 3 else 0):  # waits about no data
        *producers, waiter = sorted(rng.sample(range(len(plan.steps)), k=3))
        plan.steps[waiter].waits.append((event(tuple(producers)), rng.choice((0, 0, 1))))
    plan.events = len(events)


def _share_pages(plan: Small, rng: random.Random) -> None:
    """Some activations on pages, often two on the same one."""
    page = 0
    for buffer in plan.buffers:
        if buffer.state or rng.random() < 0.4:
            continue
        first = page if rng.random() < 0.6 else max(0, page - 1)
        last = first + rng.choice((1, 1, 2))
        buffer.pages, page = (first, last), max(page, last)


def _spoil(plan: Small, rng: random.Random) -> None:
    step = rng.choice(plan.steps)
    what = rng.randrange(5)
    if what == 0 and step.waits:
        step.waits.pop(rng.randrange(len(step.waits)))
    elif what == 1 and step.waits:
        place = rng.randrange(len(step.waits))
        step.waits[place] = (step.waits[place][0], 1 - step.waits[place][1])
    elif what == 2 and plan.events:
        step.waits.append((rng.randrange(plan.events), rng.choice((0, 0, 1))))
    elif what == 3:
        queue = rng.choice([queue for queue in plan.queues if queue])
        place = rng.randrange(len(queue))
        queue.insert(rng.randrange(len(queue)), queue.pop(place))
    elif what == 4 and step.signals:
        event = step.signals.pop(rng.randrange(len(step.signals)))
        other = rng.choice(plan.steps)
        if event not in other.signals:
            other.signals.append(event)


def file_of(plan: Small) -> bytes:
    """The plan file of a small plan. Only what order and memory are about is meant; operators are any."""
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in TABLES}
    pages = max((buffer.pages[1] for buffer in plan.buffers), default=0)
    rows["devices"].append((Role.MLA, pages, 0))
    for buffer in plan.buffers:
        kind = BufferKind.STATE if buffer.state else BufferKind.ACTIVATION
        first, last = buffer.pages
        rows["buffers"].append((kind, Dtype.F32, 1, buffer.size, 0, 0, first, last - first))
    counts = [sum(s.tiles for s in plan.steps if event in s.signals) for event in range(plan.events)]
    rows["events"] = [(count, 0, 0) for count in counts]
    for worker, queue in enumerate(plan.queues):
        rows["workers"].append((0, len(rows["tasks"]), len(queue), WarpRole.ALL, 1))
        for step in (plan.steps[task] for task in queue):
            ranges: list[float] = []
            for table, added in (
                ("waits", [(event, max(counts[event], 1), lag) for event, lag in step.waits]),
                ("signals", [(event,) for event in step.signals]),
                ("args", [(b, Access.WRITE if w else Access.READ, 0, 1, lo, hi) for b, lo, hi, w in step.touches]),
            ):
                ranges += [len(rows[table]), len(added)]
                rows[table] += added
            operator = number("embed" if step.registers else "matvec")
            rows["tasks"].append((operator, worker, *ranges, 0, 0, 0, 1, 0, 0, 0, step.tiles))
    manifest = Manifest(
        model="small",
        device="any",
        capacity=1,
        operators=tuple(operator.name for operator in OPERATORS),
        names=("any",),
        weights={},
        limits={},
        bucket=(1, 1),
    )
    tables = {name: np.array(rows[name], dtype=d).reshape(-1, width) for name, (d, width) in TABLES.items()}
    return encode(dataclasses.replace(Plan(manifest, **tables)))
