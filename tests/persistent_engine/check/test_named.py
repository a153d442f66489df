"""Cases that a scheduler gets wrong sooner or later, each by its name."""

import pytest

from persistent_engine.check import check
from persistent_engine.plan import Task
from tests.mutation.plan.built import two_devices
from tests.mutation.plan.tables import Tables
from tests.oracle.explorer import Buffer, Small, Step, explore
from tests.oracle.plans import draw, file_of

ABOUT_ORDER = {"P4", "P5", "P6", "P7", "P8", "P9"}


def broken(plan: Small) -> set[str]:
    """Rules of order and memory that find something; the explorer must agree that there is something."""
    found = {finding.rule for finding in check(file_of(plan)).findings} & ABOUT_ORDER
    assert bool(explore(plan)) == bool(found)
    return found


@pytest.mark.contract("P5")
def test_two_queues_that_wait_crosswise_over_an_acyclic_data_graph() -> None:
    """b reads what d writes, c reads what a writes: no ring in the data. But b comes before a, and c before d."""
    b = Step(waits=[(1, 0)], touches=[(1, 0, 2, False)])
    a = Step(signals=[0], touches=[(0, 0, 2, True)])
    c = Step(waits=[(0, 0)], touches=[(0, 0, 2, False)])
    d = Step(signals=[1], touches=[(1, 0, 2, True)])
    crosswise = Small([[0, 1], [2, 3]], [b, a, c, d], [Buffer(2), Buffer(2)], 2)
    assert broken(crosswise) == {"P5"}
    in_order = Small([[1, 0], [3, 2]], [b, a, c, d], [Buffer(2), Buffer(2)], 2)
    assert "P5" not in {finding.rule for finding in check(file_of(in_order)).findings}
    witness = next(finding.witness for finding in check(file_of(crosswise)).findings if finding.rule == "P5")
    assert [item.number for item in witness] == [0, 2]


@pytest.mark.contract("P9")
@pytest.mark.parametrize("apart", [True, False])
def test_serial_reuse_of_one_page(apart: bool) -> None:
    """Two buffers on one page: right when the last reader of the first comes before the writer of the second."""
    steps = [
        Step(touches=[(0, 0, 2, True)]),
        Step(touches=[(0, 0, 2, False)]),
        Step(touches=[(1, 0, 2, True)]),
        Step(touches=[(1, 0, 2, False)]),
    ]
    order = [0, 1, 2, 3] if apart else [0, 2, 1, 3]
    plan = Small([order], steps, [Buffer(2, pages=(0, 1)), Buffer(2, pages=(0, 1))], 0)
    assert broken(plan) == (set() if apart else {"P9"})


@pytest.mark.contract("P9")
def test_serial_reuse_on_two_workers_needs_the_reader_to_be_waited_for() -> None:
    steps = [
        Step(signals=[0], touches=[(0, 0, 2, True)]),
        Step(waits=[(2, 0)], signals=[1], touches=[(1, 0, 2, True)]),
        Step(waits=[(3, 0)]),
        Step(waits=[(0, 0)], signals=[2], touches=[(0, 0, 2, False)]),
        Step(waits=[(1, 0)], signals=[3], touches=[(1, 0, 2, False)]),
    ]
    buffers = [Buffer(2, pages=(0, 1)), Buffer(2, pages=(0, 1))]
    assert broken(Small([[0, 1, 2], [3, 4]], steps, buffers, 4)) == set()
    steps[1].waits = []
    assert "P9" in broken(Small([[0, 1, 2], [3, 4]], steps, buffers, 4))


@pytest.mark.contract("P4")
def test_fewer_partial_results_than_the_waiter_expects() -> None:
    """Attention in two parts; the second part's worker says nothing when it is done."""
    tables = Tables(two_devices())
    rest = tables.task("rest")
    tables.tasks[rest, Task.SIGNAL_COUNT] = 0
    found = [finding for finding in check(tables.file()).findings if finding.rule == "P4"]
    assert any("waits for 2 signals an epoch, there are 1" in finding.message for finding in found)
    assert any(item.name == "combine" for finding in found for item in finding.witness)


@pytest.mark.contract("P8")
def test_a_producer_one_epoch_ahead_stands_in_for_a_late_one() -> None:
    """Worker 0 leads and waits for nobody. Its second signal makes up for worker 1's first, and worker 2 goes on."""
    ahead, late, waiter = Step(signals=[0]), Step(signals=[0]), Step(waits=[(0, 0)], signals=[1])
    plan = Small([[0], [1], [2]], [ahead, late, waiter], [], 2)
    assert "goes on without all producers" in explore(plan)
    assert broken(plan) == {"P8"}
    closed = Step(waits=[(1, 0)])  # the leader's epoch ends after the waiter's
    assert broken(Small([[0, 3], [1], [2]], [ahead, late, waiter, closed], [], 2)) == set()


@pytest.mark.contract("P8")
def test_a_credit_holds_a_writer_back_that_the_gate_lets_go() -> None:
    """The leader writes, worker 1 reads and nobody waits for it within the epoch."""
    writer, reader = Step(signals=[0], touches=[(0, 0, 2, True)]), Step(waits=[(0, 0)], touches=[(0, 0, 2, False)])
    assert broken(Small([[0], [1]], [writer, reader], [Buffer(2)], 1)) == {"P8"}
    writer.waits, reader.signals = [(1, 1)], [1]
    assert broken(Small([[0], [1]], [writer, reader], [Buffer(2)], 2)) == set()


@pytest.mark.contract("P9")
def test_a_page_is_written_for_the_next_epoch_while_this_one_still_reads_it() -> None:
    """The leader writes one buffer on a page; worker 1 writes and reads another, and nobody waits for it."""
    steps = [
        Step(signals=[0], touches=[(0, 0, 2, True)]),
        Step(waits=[(0, 0)], touches=[(1, 0, 2, True)]),
        Step(signals=[1], touches=[(1, 0, 2, False)]),
        Step(waits=[(1, 0)]),
    ]
    buffers = [Buffer(2, pages=(0, 2)), Buffer(2, pages=(1, 2))]
    assert broken(Small([[0], [1, 2]], steps[:3], buffers, 2)) == {"P9"}
    assert broken(Small([[0, 3], [1, 2]], steps, buffers, 2)) == set()


@pytest.mark.contract("P8")
def test_a_leader_without_tasks_keeps_nobody_together() -> None:
    plan = Small([[], [0]], [Step(registers=True)], [], 0)
    assert broken(plan) == {"P8"}


@pytest.mark.contract("P8")
@pytest.mark.parametrize("seed", [0, 114, 237, 307, 341, 565, 101382, 101577, 102570, 102662, 103239, 103568])
def test_counters_that_look_unsafe_and_are_not(seed: int) -> None:
    """Random plans in which a producer can be ahead of a late one, and the waiter is held back all the same."""
    assert broken(draw(seed)) == set()


@pytest.mark.contract("P8")
def test_what_the_leader_has_run_is_sure_to_be_done_after_the_gate() -> None:
    """Worker 1 comes to its credit after the gate: what the leader did in the epoch before is done."""
    led, waiter, other = Step(signals=[0], tiles=2), Step(waits=[(0, 1)]), Step(signals=[0])
    assert broken(Small([[0], [1], [2]], [led, waiter, other], [], 1)) == {"P8"}
    assert broken(Small([[0, 2], [1]], [led, waiter, other], [], 1)) == set()


@pytest.mark.contract("P8")
def test_a_credit_beside_a_wait_does_not_make_the_wait_sure() -> None:
    ahead, late = Step(signals=[0, 1]), Step(signals=[0])
    waiter = Step(waits=[(0, 0), (1, 1)], signals=[2])
    last = Step(waits=[(2, 1)])
    assert broken(Small([[0, 3], [1], [2]], [ahead, late, waiter, last], [], 3)) == {"P8"}
