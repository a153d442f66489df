"""Mutants of what a plan is made of: P1 references, P2 contracts, P3 limits, P4 counts, P6 coverage."""

import numpy as np

from persistent_engine.plan import Arg, BufferKind, BufferRow, Device, Dtype, Event, Task, Wait, Worker
from tests.mutation.plan.tables import Tables

__all__ = ["MUTANTS"]


def p1_operator_that_is_not_there(t: Tables) -> None:
    t.tasks[5, Task.OPERATOR] = 10_000


def p1_operators_numbered_otherwise(t: Tables) -> None:
    first, second, *rest = t.manifest.operators
    t.change(operators=(second, first, *rest))


def p1_buffer_below_zero(t: Tables) -> None:
    t.args[3, Arg.BUFFER] = -1


def p1_box_past_its_buffer(t: Tables) -> None:
    t.args[2, Arg.COL_LAST] += 1


def p1_empty_box(t: Tables) -> None:
    t.args[2, Arg.COL_LAST] = t.args[2, Arg.COL_FIRST]


def p1_wait_for_an_event_that_is_not_there(t: Tables) -> None:
    t.waits[0, Wait.EVENT] = len(t.events)


def p1_queues_that_share_a_task(t: Tables) -> None:
    t.workers[0, Worker.TASK_COUNT] += 1


def p1_task_in_no_queue(t: Tables) -> None:
    t.workers[-1, Worker.TASK_COUNT] -= 1


def p1_task_of_another_worker(t: Tables) -> None:
    t.tasks[0, Task.WORKER] = 1


def p1_arguments_that_two_tasks_share(t: Tables) -> None:
    t.tasks[1, Task.ARG_FIRST] -= 1


def p1_queue_past_the_table(t: Tables) -> None:
    t.workers[-1, Worker.TASK_FIRST] += 1


def p1_waits_past_the_table(t: Tables) -> None:
    t.tasks[t.waiting(), Task.WAIT_COUNT] = len(t.waits) + 1


def p1_weight_that_is_no_buffer(t: Tables) -> None:
    t.change(weights={**t.manifest.weights, "nowhere": ("nowhere",)})


def p1_one_plane_twice(t: Tables) -> None:
    planes = np.flatnonzero(t.buffers[:, BufferRow.KIND] == BufferKind.STATE)
    t.buffers[planes[1], BufferRow.NAME] = t.buffers[planes[0], BufferRow.NAME]


def p1_no_tasks(t: Tables) -> None:
    t.tasks, t.workers = t.tasks[:0], t.workers[:0]


def p1_rows_backwards(t: Tables) -> None:
    t.tasks[0, Task.ROW_FIRST] = 7


def p1_buffer_without_elements(t: Tables) -> None:
    t.buffers[0, BufferRow.ROWS] = 0


def p2_input_marked_as_output(t: Tables) -> None:
    t.args[t.tasks[t.running("matvec"), Task.ARG_FIRST] + 1, Arg.ACCESS] = 1


def p2_wrong_dtype(t: Tables) -> None:
    t.buffers[t.args[t.written(t.running("matvec")), Arg.BUFFER], BufferRow.DTYPE] = Dtype.I32


def p2_argument_missing(t: Tables) -> None:
    t.tasks[t.running("matvec"), Task.ARG_COUNT] -= 1


def p2_argument_too_many(t: Tables) -> None:
    task = t.running("embed")
    t.tasks[task + 1, [Task.ARG_FIRST, Task.ARG_COUNT]] += (1, -1)
    t.tasks[task, Task.ARG_COUNT] += 1


def p2_parameter_missing(t: Tables) -> None:
    t.tasks[t.running("mla_store"), Task.PARAM_COUNT] -= 1


def p2_parameter_that_is_no_number(t: Tables) -> None:
    t.params[t.tasks[t.running("mla_store"), Task.PARAM_FIRST]] = np.nan


def p2_range_longer_than_its_boxes(t: Tables) -> None:
    t.tasks[t.running("matvec"), Task.ROW_LAST] += 1


def p2_rank_that_does_not_fit(t: Tables) -> None:
    t.params[t.tasks[t.running("mla_store"), Task.PARAM_FIRST] + 1] += 1


def p3_no_lanes(t: Tables) -> None:
    t.workers[0, Worker.LANES] = 0


def p3_more_lanes_than_the_device_has(t: Tables) -> None:
    t.workers[0, Worker.LANES] = 5  # two compute workers of 4 and 5; the machine has 8


def p3_more_devices_than_the_machine_has(t: Tables) -> None:
    t.devices = np.vstack([t.devices, t.devices[:1]])


def p3_pages_that_the_device_lacks(t: Tables) -> None:
    t.buffers[t.buffer("logits"), BufferRow.PAGE_FIRST] = 6


def p3_pages_below_zero(t: Tables) -> None:
    t.devices[1, Device.PAGES] = -1


def p3_buffer_larger_than_its_pages(t: Tables) -> None:
    t.change(limits={**t.manifest.limits, "page_bytes": 60})


def p3_weight_on_pages(t: Tables) -> None:
    t.buffers[t.buffer("head"), BufferRow.PAGE_COUNT] = 1


def p4_fewer_signals_than_waited_for(t: Tables) -> None:
    t.waits[0, Wait.COUNT] += 1


def p4_more_signals_than_waited_for(t: Tables) -> None:
    t.waits[1, Wait.COUNT] -= 1


def p4_producers_miscounted(t: Tables) -> None:
    t.events[0, Event.PRODUCERS] += 1


def p4_a_row_of_two_tiles(t: Tables) -> None:
    t.tasks[np.flatnonzero(t.tasks[:, Task.SIGNAL_COUNT])[0], Task.TILES] = 2


def p4_no_tiles(t: Tables) -> None:
    t.tasks[-1, Task.TILES] = 0


def p4_wait_for_two_epochs_ago(t: Tables) -> None:
    t.waits[0, Wait.LAG] = 2


def p4_wait_for_the_next_epoch(t: Tables) -> None:
    t.waits[0, Wait.LAG] = -1


def p4_signal_to_another_event(t: Tables) -> None:
    t.signals[0, 0] = (t.signals[0, 0] + 1) % len(t.events)


def p4_event_that_nobody_signals(t: Tables) -> None:
    t.wait(t.waiting(), t.new_event([]))


def p4_signalled_twice_by_one_task(t: Tables) -> None:
    task = t.running("embed")
    event = t.new_event([task, task])
    t.wait(t.waiting(), event)


def p6_column_not_written(t: Tables) -> None:
    t.args[t.written(t.running("matvec")), Arg.COL_FIRST] += 1


def p6_column_written_twice(t: Tables) -> None:
    halves = np.flatnonzero((t.tasks[:, Task.ROW_FIRST] > 0) & (t.tasks[:, Task.OPERATOR] == t.tasks[2, Task.OPERATOR]))
    t.args[t.written(int(halves[0])), Arg.COL_FIRST] -= 1


def p6_written_by_two(t: Tables) -> None:
    one, other = (t.written(t.running("rmsnorm", place)) for place in (0, 1))
    t.args[one] = t.args[other]


def p6_plane_that_lacks_this_token(t: Tables) -> None:
    attend = int(t.tasks[t.running("mla_attend"), Task.ARG_FIRST]) + 1
    t.args[attend, Arg.BUFFER] = t.new_buffer(t.name(t.buffers[t.args[attend, Arg.BUFFER], BufferRow.NAME]))
    t.change(names=(*t.manifest.names, "another plane"))
    t.buffers[-1, BufferRow.NAME] = len(t.manifest.names) - 1


def p6_read_and_never_written(t: Tables) -> None:
    task = t.running("embed")
    t.args[t.written(task), Arg.BUFFER] = t.new_buffer(t.name(t.buffers[t.args[t.written(task), 0], BufferRow.NAME]))


MUTANTS = {name: value for name, value in list(globals().items()) if name[0] == "p" and name[1].isdigit()}
