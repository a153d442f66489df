"""Mutants of place and use: P10 placement, P11 communication, P12 reach, P13 counts in the bucket."""

import numpy as np

from persistent_engine.plan import Access, Arg, BufferKind, BufferRow, Device, Dtype, Role, Task, WarpRole, Worker
from tests.mutation.plan.tables import Tables

__all__ = ["MUTANTS"]


def p10_task_says_another_device(t: Tables) -> None:
    t.tasks[t.task("key"), Task.DEVICE] = 0


def p10_buffer_on_another_device(t: Tables) -> None:
    t.buffers[t.buffer("kv"), BufferRow.DEVICE] = 1


def p10_indexer_and_attention_exchanged(t: Tables) -> None:
    t.devices[:, Device.ROLE] = (Role.INDEXER, Role.MLA)


def p10_copy_in_a_compute_worker(t: Tables) -> None:
    t.workers[2, Worker.WARP_ROLE] = WarpRole.COMPUTE


def p10_product_in_a_load_worker(t: Tables) -> None:
    t.workers[0, Worker.WARP_ROLE] = WarpRole.LOAD


def p10_another_worker_leads(t: Tables) -> None:
    t.workers[[0, 1]] = t.workers[[1, 0]]
    t.tasks[t.tasks[:, Task.WORKER] < 2, Task.WORKER] ^= 1


def p10_weight_written(t: Tables) -> None:
    t.args[t.arg("head", 0), Arg.ACCESS] = Access.WRITE


def p10_activation_for_a_plane(t: Tables) -> None:
    t.buffers[t.buffer("kv"), BufferRow.KIND] = BufferKind.ACTIVATION


def p10_plane_for_an_activation(t: Tables) -> None:
    t.buffers[t.buffer("y"), BufferRow.KIND] = BufferKind.STATE


def p10_nothing_decides_the_token(t: Tables) -> None:
    t.tasks[t.task("sample"), Task.OPERATOR] = t.tasks[t.task("send x"), Task.OPERATOR]


def p11_half_of_it_sent(t: Tables) -> None:
    t.args[t.arg("send x", 0), Arg.COL_LAST] = 4


def p11_another_width_of_element(t: Tables) -> None:
    t.buffers[t.buffer("x.1"), BufferRow.DTYPE] = Dtype.BF16


def p11_reader_does_not_wait(t: Tables) -> None:
    t.drop_waits(t.task("key"))


def p11_sent_and_never_read(t: Tables) -> None:
    spare = t.new_buffer("ids")
    t.args[t.arg("send ids", 1), Arg.BUFFER] = spare


def p11_sent_again_without_credit(t: Tables) -> None:
    """A reader that nothing else waits for: only a credit could hold the sender back."""
    spare = t.new_buffer("query")
    t.append(3, "turn", [(t.buffer("x.1"), 0, 0, 1, 0, 8), (t.buffer("rope.1"), 0, 0, 64, 0, 4), t.whole(spare, 1)])


def p11_weights_of_another_device(t: Tables) -> None:
    t.args[t.arg("send x", 1), Arg.BUFFER] = t.buffer("norm.1")


def p12_result_that_nobody_reads(t: Tables) -> None:
    spare = t.new_buffer("y")
    t.append(0, "output", [*map(tuple, t.args[t.arg("output", 0) :][:3]), t.whole(spare, 1)])


def p12_two_results_that_only_need_each_other(t: Tables) -> None:
    one, other = t.new_buffer("y"), t.new_buffer("y")
    first = [tuple(row) for row in t.args[t.arg("output", 0) :][:3]]
    t.append(0, "output", [*first, t.whole(one, 1)])
    t.append(0, "output", [first[0], t.whole(one, 0), first[2], t.whole(other, 1)])


def p12_event_that_nobody_waits_for(t: Tables) -> None:
    t.new_event([0])


def p12_buffer_that_nobody_touches(t: Tables) -> None:
    t.new_buffer("y")


def p12_worker_without_tasks(t: Tables) -> None:
    t.workers = np.vstack([t.workers, t.workers[-1:]])
    t.workers[-1, [Worker.TASK_FIRST, Worker.TASK_COUNT]] = (len(t.tasks), 0)


def p12_device_without_workers(t: Tables) -> None:
    t.devices = np.vstack([t.devices, t.devices[-1:]])


def p12_argument_of_no_task(t: Tables) -> None:
    t.args = np.vstack([t.args, t.args[-1:]])


def p12_name_of_nothing(t: Tables) -> None:
    t.change(names=(*t.manifest.names, "nothing"))


def p13_bucket_past_the_capacity(t: Tables) -> None:
    t.change(bucket=(1, t.manifest.capacity + 1))


def p13_bucket_backwards(t: Tables) -> None:
    t.change(bucket=(5, 4))


def p13_planes_too_short(t: Tables) -> None:
    t.change(bucket=(1, 65), capacity=65)


def p13_parts_that_leave_chosen_tokens_out(t: Tables) -> None:
    for label in ("part", "rest"):
        t.params[t.tasks[t.task(label), Task.PARAM_FIRST] + 3] = 1


def p13_planes_past_the_slot(t: Tables) -> None:
    t.change(bucket=(1, 63), capacity=63)


def p13_longer_jobs_than_the_plan_is_for(t: Tables) -> None:
    t.change(limits={**t.manifest.limits, "capacity": 65})


def p13_tokens_past_the_table(t: Tables) -> None:
    t.change(limits={**t.manifest.limits, "vocabulary": 17})


def p13_table_without_its_first_row(t: Tables) -> None:
    t.args[t.arg("embed", 0), Arg.ROW_FIRST] = 1


def p13_the_same_part_twice(t: Tables) -> None:
    t.tasks[t.task("rest"), [Task.ROW_FIRST, Task.ROW_LAST]] = (0, 1)


def p13_tokens_not_scored(t: Tables) -> None:
    t.tasks[t.task("more"), [Task.ROW_FIRST, Task.ROW_LAST]] = (16, 48)


def p13_more_chosen_than_the_model_does(t: Tables) -> None:
    t.change(limits={**t.manifest.limits, "index_topk": 3})


def p13_plane_cut_short(t: Tables) -> None:
    t.args[t.arg("part", 1), Arg.ROW_LAST] = 63


def p13_angles_cut_short(t: Tables) -> None:
    t.args[t.arg("turn", 1), Arg.ROW_LAST] = 63


def p13_store_past_its_box(t: Tables) -> None:
    t.args[[t.arg("store", 2), t.arg("store", 3)], Arg.ROW_LAST] = 32


MUTANTS = {name: value for name, value in list(globals().items()) if name[0] == "p" and name[1].isdigit()}
