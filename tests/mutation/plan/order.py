"""Mutants of order and memory: P5 rings, P7 regions, P8 epochs, P9 pages."""

import numpy as np

from persistent_engine.plan import Access, Arg, BufferRow, Task, Wait, Worker
from tests.mutation.plan.tables import Tables

__all__ = ["MUTANTS"]


def p5_own_later_task(t: Tables) -> None:
    t.wait(0, t.new_event([1]))


def p5_itself(t: Tables) -> None:
    t.wait(0, t.new_event([0]))


def p5_two_queues_crosswise(t: Tables) -> None:
    other = int(t.workers[1, Worker.TASK_FIRST])
    t.wait(0, t.new_event([other + 1]))
    t.wait(other, t.new_event([1]))


def p5_one_task_moved_up(t: Tables) -> None:
    """The last task of worker 0 goes first: it waits for all others, which come after it."""
    last = int(t.workers[0, Worker.TASK_COUNT]) - 1
    t.tasks[: last + 1] = np.roll(t.tasks[: last + 1], 1, axis=0)


def p7_wait_forgotten(t: Tables) -> None:
    t.drop_waits(t.waiting())


def p7_last_wait_forgotten(t: Tables) -> None:
    t.drop_waits(t.waiting(-1))


def p7_wait_for_the_epoch_before(t: Tables) -> None:
    t.waits[t.tasks[t.waiting(), Task.WAIT_FIRST], Wait.LAG] = 1


def p7_reader_before_writer_in_one_queue(t: Tables) -> None:
    t.swap(t.running("embed"), t.running("embed") + 1)


def p7_state_read_beside_the_store(t: Tables) -> None:
    """Another store to the same plane, by the other worker, before its first task."""
    plane = t.args[t.written(t.running("mla_store"))]
    for task in np.flatnonzero(t.tasks[:, Task.OPERATOR] == t.tasks[t.running("mla_store"), Task.OPERATOR])[1:]:
        t.args[t.written(int(task))] = plane
    attend = t.tasks[t.running("mla_attend"), Task.OPERATOR]
    t.tasks[(t.tasks[:, Task.WORKER] == 0) & (t.tasks[:, Task.OPERATOR] == attend), Task.WAIT_COUNT] = 0


def p7_plane_of_one_name_on_two_devices(t: Tables) -> None:
    """A task of the second device reads the plane of the first, and does not wait for the store."""
    t.buffers = np.vstack([t.buffers, t.buffers[t.buffer("kv")]])
    t.buffers[-1, BufferRow.DEVICE] = 1
    args = [t.whole(t.buffer("query"), Access.READ)] * 2 + [t.whole(len(t.buffers) - 1, Access.READ)]
    spare = t.new_buffer("scores")
    t.append(3, "score", [*args, t.whole(spare, Access.WRITE)])


def _loose_reader(t: Tables, worker: int) -> int:
    """A task at the end of a queue that reads what worker 0 writes, in order, and that no one waits for."""
    source = t.tasks[t.running("rmsnorm"), Task.ARG_FIRST]
    args = [tuple(row) for row in t.args[source : source + 3]]
    args[2] = t.whole(t.new_buffer(t.name(t.buffers[args[2][Arg.BUFFER], BufferRow.NAME])), Access.WRITE)
    like = t.name(t.tasks[t.running("rmsnorm"), Task.LABEL])
    return t.append(worker, like, args)


def p8_reader_that_the_next_epoch_does_not_wait_for(t: Tables) -> None:
    task = _loose_reader(t, 1)
    t.wait(task, t.new_event([t.running("embed")]))


def p8_token_read_after_the_leader_has_moved_on(t: Tables) -> None:
    embed = t.running("embed")
    first = t.tasks[embed, Task.ARG_FIRST]
    args = [tuple(row) for row in t.args[first : first + 2]]
    args[1] = t.whole(t.new_buffer(t.name(t.buffers[args[1][Arg.BUFFER], BufferRow.NAME])), Access.WRITE)
    t.append(1, t.name(t.tasks[embed, Task.LABEL]), args)


def p8_state_written_after_the_leader_has_moved_on(t: Tables) -> None:
    t.append(1, t.name(t.tasks[t.running("mla_store"), Task.LABEL]))


def p8_producer_ahead_stands_in_for_a_late_one(t: Tables) -> None:
    """The leader's signal of the next epoch looks like worker 1's of this one, which nothing else waits for."""
    late = _loose_reader(t, 1)
    ahead = t.running("embed")
    event = t.new_event([ahead, late])
    t.wait(_loose_reader(t, 1), event)
    t.wait(late, t.new_event([ahead]))


def p8_credit_counts_an_early_signal(t: Tables) -> None:
    late = _loose_reader(t, 1)
    event = t.new_event([t.running("embed"), late])
    t.wait(int(t.workers[0, Worker.TASK_COUNT]) - 1, event, lag=1)


def p9_two_at_a_time_on_a_page(t: Tables) -> None:
    t.buffers[t.buffer("q"), BufferRow.PAGE_FIRST] = 0  # x lives till the end


def p9_one_page_more(t: Tables) -> None:
    t.buffers[t.buffer("absorbed"), BufferRow.PAGE_COUNT] = 2  # reaches into the parts


def p9_on_a_page_that_the_other_device_writes(t: Tables) -> None:
    t.buffers[t.buffer("ids"), BufferRow.PAGE_FIRST] = 0


def p9_still_read_when_the_next_epoch_writes(t: Tables) -> None:
    """A reader that the leader does not wait for, of a buffer that comes last on its page; the first on that page is
    written in the next epoch all the same."""
    spare = t.new_buffer("context")
    t.append(1, "combine", [t.whole(t.buffer("parts"), Access.READ), t.whole(spare, Access.WRITE)])
    t.buffers[spare, BufferRow.PAGE_COUNT] = 0
    t.buffers[t.buffer("y"), BufferRow.PAGE_FIRST] = 2
    t.buffers[t.buffer("values"), BufferRow.PAGE_FIRST] = 3


MUTANTS = {name: value for name, value in list(globals().items()) if name[0] == "p" and name[1].isdigit()}
