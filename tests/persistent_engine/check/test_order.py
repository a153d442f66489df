"""The order's clocks against the order written out: every task of three epochs, every edge, closed by hand."""

import random

import numpy as np
import pytest

from persistent_engine.check.order import Order
from tests.oracle.plans import draw

EPOCHS = 3


def written_out(queues, waits, signals) -> dict[tuple[int, int], set[tuple[int, int]]]:  # type: ignore[no-untyped-def]
    """(task, epoch) -> all that is done before it begins."""
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for epoch in range(EPOCHS):
        for queue in queues:
            for place, task in enumerate(queue):
                before = edges.setdefault((task, epoch), [])
                if place:
                    before.append((queue[place - 1], epoch))
                elif epoch:
                    before += [(end[-1], epoch - 1) for end in (queue, queues[0]) if end]
                for event, lag in waits[task]:
                    if epoch >= lag:
                        before += [(p, epoch - lag) for p, out in enumerate(signals) if event in out]
    done: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for node in edges:
        open_, known = list(edges[node]), set(edges[node])
        while open_:
            for other in edges[open_.pop()]:
                if other not in known:
                    known.add(other)
                    open_.append(other)
        done[node] = known
    return done


@pytest.mark.contract("P5", "P7", "P8")
@pytest.mark.parametrize("seed", range(120))
def test_clocks_say_what_the_closure_says(seed: int) -> None:
    plan = draw(seed)
    number = {task: row for row, task in enumerate(task for queue in plan.queues for task in queue)}
    queues = [[number[task] for task in queue] for queue in plan.queues]
    steps = [plan.steps[task] for task in number]
    done = written_out(queues, [step.waits for step in steps], [step.signals for step in steps])
    firsts = np.cumsum([0, *map(len, queues)])[:-1]
    order = Order(
        np.column_stack([firsts, [len(queue) for queue in queues]]),
        len(steps),
        plan.events,
        np.array([(t, e, lag) for t, s in enumerate(steps) for e, lag in s.waits], dtype=np.int64).reshape(-1, 3),
        np.array([(t, e) for t, s in enumerate(steps) for e in s.signals], dtype=np.int64).reshape(-1, 2),
    )
    assert bool(order.cycle) == any((task, 0) in done[task, 0] for task in range(len(steps)))
    if order.cycle:
        return
    assert sorted(order.sequence) == list(range(len(steps)))
    every = np.arange(len(steps))
    for task in every:
        again = np.full_like(every, task)
        assert order.before(every, again).tolist() == [(o, 0) in done[int(task), 0] for o in every.tolist()]
        assert order.follows(every, again).tolist() == [(o, 0) in done[int(task), 1] for o in every.tolist()]
    some = np.array(random.Random(seed).sample(range(len(steps)), k=2))
    for asked, pair in ((order.all_before, order.before), (order.all_follow, order.follows)):
        single = [all(pair(some, np.full_like(some, task)).tolist()) for task in every]
        assert asked(order.latest(some), every).tolist() == single
