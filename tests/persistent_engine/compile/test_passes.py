"""Compiler passes keep their specs: rows partition, every read has its writer before it, queues cannot deadlock."""

import itertools

import numpy as np
import pytest

from deploy.checkpoints import ensure
from persistent_engine.compile import POLICIES, compile_plan, this_cpu
from persistent_engine.models import read_facts
from persistent_engine.plan import Access, Arg, BufferKind, BufferRow, Event, Plan, Task, Wait, Worker
from persistent_engine.runtime.bind import check_references
from speedtier.errors import PlanError

CASES = list(itertools.product(["tiny-gqa", "tiny-mla"], [1, 2, 3], sorted(POLICIES), [1, 3]))


def _plan(name: str, workers: int, policy: str, tiles: int) -> Plan:
    facts = read_facts(ensure(name))
    return compile_plan(facts, this_cpu(workers), capacity=256, policy=policy, tiles_per_worker=tiles)


def _order(plan: Plan) -> list[set[int]]:
    """For each task, all tasks that must have ended before it may start: by queue, and by full events."""
    producers: dict[int, list[int]] = {}
    for task, row in enumerate(plan.tasks):
        for event in plan.signals[row[Task.SIGNAL_FIRST] : row[Task.SIGNAL_FIRST] + row[Task.SIGNAL_COUNT], 0]:
            producers.setdefault(int(event), []).append(task)
    before: list[set[int]] = [set() for _ in plan.tasks]
    heads = [int(w[Worker.TASK_FIRST]) for w in plan.workers]
    ends = [int(w[Worker.TASK_FIRST] + w[Worker.TASK_COUNT]) for w in plan.workers]
    done: set[int] = set()
    while len(done) < len(plan.tasks):
        progress = len(done)
        for queue, end in enumerate(ends):
            while heads[queue] < end:
                task = heads[queue]
                row = plan.tasks[task]
                waits = plan.waits[row[Task.WAIT_FIRST] : row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT], Wait.EVENT]
                needed = {p for event in waits for p in producers[int(event)]}
                if not needed <= done:
                    break
                if task > plan.workers[queue, Worker.TASK_FIRST]:
                    needed.add(task - 1)
                before[task] = needed.union(*(before[p] for p in needed))
                done.add(task)
                heads[queue] += 1
        assert len(done) > progress, "the queues wait for each other"
    return before


@pytest.mark.contract("P4", "P5", "P7")
@pytest.mark.parametrize(("name", "workers", "policy", "tiles"), CASES)
def test_every_read_follows_its_writers(name: str, workers: int, policy: str, tiles: int) -> None:
    plan = _plan(name, workers, policy, tiles)
    before, written = _order(plan), {}
    masks = {n: np.full((r[BufferRow.ROWS], r[BufferRow.COLS]), -1) for n, r in enumerate(plan.buffers)}

    def args(task: int, access: Access) -> list[np.ndarray]:
        row = plan.tasks[task]
        every = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]
        return [a for a in every if a[Arg.ACCESS] == access]

    def box(arg: np.ndarray) -> tuple[slice, slice]:
        return slice(arg[Arg.ROW_FIRST], arg[Arg.ROW_LAST]), slice(arg[Arg.COL_FIRST], arg[Arg.COL_LAST])

    for task in range(len(plan.tasks)):
        for arg in args(task, Access.WRITE):
            cells = masks[int(arg[Arg.BUFFER])][box(arg)]
            assert (cells == -1).all(), "an element is written twice in a step"
            cells[:] = task
            written[int(arg[Arg.BUFFER])] = True
    for task in range(len(plan.tasks)):
        for arg in args(task, Access.READ):
            buffer = int(arg[Arg.BUFFER])
            if plan.buffers[buffer, BufferRow.KIND] == BufferKind.WEIGHT:
                continue
            writers = set(np.unique(masks[buffer][box(arg)]).tolist())
            assert -1 not in writers, "an element is read that nobody writes"
            assert writers <= before[task]
    last = len(plan.tasks[plan.tasks[:, Task.WORKER] == 0]) - 1
    assert before[last] == set(range(len(plan.tasks))) - {last}, "a task may outlive the step"


@pytest.mark.contract("P4")
@pytest.mark.parametrize(("name", "workers", "policy", "tiles"), CASES)
def test_events_count_their_signals(name: str, workers: int, policy: str, tiles: int) -> None:
    plan = _plan(name, workers, policy, tiles)
    counts = np.bincount(plan.signals[:, 0], minlength=len(plan.events))
    np.testing.assert_array_equal(counts, plan.events[:, Event.PRODUCERS])
    np.testing.assert_array_equal(plan.waits[:, Wait.COUNT], plan.events[plan.waits[:, Wait.EVENT], Event.PRODUCERS])
    assert (workers == 1) == (len(plan.events) == 0)


@pytest.mark.contract("P1")
def test_a_reference_outside_its_table_is_refused() -> None:
    plan = _plan("tiny-mla", 2, "list", 1)
    check_references(plan)
    for table, column, value in [
        ("tasks", Task.ARG_FIRST, 10_000),
        ("tasks", Task.WAIT_FIRST, -1),
        ("tasks", Task.OPERATOR, 99),
        ("waits", Wait.EVENT, len(plan.events)),
        ("args", Arg.BUFFER, -1),
        ("args", Arg.COL_LAST, 1 << 20),
        ("workers", Worker.TASK_COUNT, 10_000),
    ]:
        changed = getattr(plan, table).copy()
        changed[1 if len(changed) > 1 else 0, column] = value
        with pytest.raises(PlanError):
            check_references(type(plan)(**{**vars(plan), table: changed}))


@pytest.mark.parametrize(("field", "value"), [("capacity", 0), ("capacity", 1 << 20), ("policy", "best")])
def test_what_cannot_be_compiled_is_named(field: str, value: object) -> None:
    with pytest.raises(PlanError, match=field):
        compile_plan(read_facts(ensure("tiny-gqa")), this_cpu(1), **{"capacity": 64, field: value})  # type: ignore[arg-type]
