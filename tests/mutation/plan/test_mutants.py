"""Every rule has plans that are wrong in one place and that it, of all rules, finds."""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from deploy.checkpoints import ensure
from persistent_engine.check import RULES, check
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import read_facts
from persistent_engine.plan import Plan, Task
from tests.mutation.plan import order, place, shape
from tests.mutation.plan.built import two_devices
from tests.mutation.plan.tables import Tables

CORPUS: dict[str, Callable[[Tables], None]] = {**shape.MUTANTS, **order.MUTANTS, **place.MUTANTS}
BY_HAND = ("p7_plane", "p3_", "p9_", "p10_", "p11_", "p12_", "p13_")


class Machine:
    """Limits that the plan by hand just keeps."""

    name, devices, lanes = "two small ones", 2, 8


@cache
def compiled(name: str) -> Plan:
    return compile_plan(read_facts(ensure(name)), this_cpu(2), capacity=256)


def rule_of(mutant: str) -> str:
    found = re.match(r"p\d+", mutant)
    assert found
    return found.group().upper()


def source(mutant: str) -> Plan:
    return two_devices() if mutant.startswith(BY_HAND) else compiled("tiny-mla")


@pytest.mark.parametrize("plan", [two_devices, lambda: compiled("tiny-mla"), lambda: compiled("tiny-gqa")])
def test_what_the_mutants_are_made_of_is_right(plan: Callable[[], Plan]) -> None:
    report = check(Tables(plan()).file(), Machine())
    assert report.findings == ()
    assert report.rules == tuple(RULES)


def test_every_rule_has_three_mutants() -> None:
    assert min(Counter(map(rule_of, CORPUS))[rule] for rule in RULES) >= 3


@pytest.mark.contract(*RULES)
@pytest.mark.parametrize("mutant", sorted(CORPUS))
def test_a_mutant_is_found_by_its_own_rule(mutant: str) -> None:
    tables = Tables(source(mutant))
    CORPUS[mutant](tables)
    report = check(tables.file(), Machine())
    found = [finding for finding in report.findings if finding.rule == rule_of(mutant)]
    assert found, list(report.lines())
    assert all(len(finding.message) > 10 for finding in report.findings)


def implied(tables: Tables, wait: int) -> bool:
    """Whether a wait says nothing new: each of its producers comes first by queues and other waits, too."""
    before: dict[int, list[int]] = {}
    producers: dict[int, list[int]] = {}
    for task, row in enumerate(tables.tasks):
        for signal in tables.signals[row[Task.SIGNAL_FIRST] :][: row[Task.SIGNAL_COUNT], 0].tolist():
            producers.setdefault(signal, []).append(task)
    for task, row in enumerate(tables.tasks):
        waits = range(row[Task.WAIT_FIRST], row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT])
        before[task] = [one for other in waits if other != wait for one in producers[tables.waits[other, 0]]]
        if task and tables.tasks[task - 1, Task.WORKER] == row[Task.WORKER]:
            before[task].append(task - 1)
    waiter = next(
        task
        for task, row in enumerate(tables.tasks)
        if row[Task.WAIT_FIRST] <= wait < row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT]
    )
    open_, known = [waiter], {waiter}
    while open_:
        for one in before[open_.pop()]:
            if one not in known:
                known.add(one)
                open_.append(one)
    return known.issuperset(producers[tables.waits[wait, 0]])


@pytest.mark.contract("P7", "P8")
@pytest.mark.parametrize("name", ["tiny-mla", "tiny-gqa"])
def test_no_wait_can_be_late_unless_others_say_the_same(name: str) -> None:
    for wait in range(len(compiled(name).waits)):
        tables = Tables(compiled(name))
        tables.waits[wait, 2] = 1
        assert check(tables.file()).clean == implied(tables, wait), wait
