"""P12: nothing is there for nothing.

Every task contributes to what leaves the step: it decides the next token, writes a state plane, or writes something
that a contributing task reads; a task that writes nothing contributes when one waits for its signal. Every event is
waited for. Every device, buffer, worker, wait, signal, argument and label is used.
"""

import numpy as np
from numpy.typing import NDArray

from persistent_engine.check.found import Found
from persistent_engine.check.overlap import overlaps
from persistent_engine.check.registers import WRITERS
from persistent_engine.check.report import Finding, Kind
from persistent_engine.check.view import Ints, View
from persistent_engine.plan import Access, Arg, BufferKind, BufferRow, Device, Event, Task, Wait, Worker

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P12."""
    found = Found("P12")
    for task in np.flatnonzero(~_useful(view)):
        found("nothing that leaves the step depends on it", view.item("task", task))
    waited = np.zeros(len(view.events), dtype=np.bool_)
    waited[view.waits[view.wait_task >= 0, Wait.EVENT]] = True
    for event in np.flatnonzero(~waited):
        found("nothing waits for it", view.item("event", event))
    touched = np.zeros(len(view.buffers), dtype=np.bool_)
    touched[view.args[view.arg_task >= 0, Arg.BUFFER]] = True
    for buffer in np.flatnonzero(~touched):
        found("nothing touches it", view.item("buffer", buffer))
    for device in np.setdiff1d(np.arange(len(view.devices)), view.workers[:, Worker.DEVICE]):
        found("it has no worker", view.item("device", device))
    for worker in np.flatnonzero(view.workers[:, Worker.TASK_COUNT] == 0):
        found("it has no task", view.item("worker", worker))
    rows: list[tuple[Kind, Ints]]
    rows = [("wait", view.wait_task), ("signal", view.signal_task), ("arg", view.arg_task)]
    for kind, owner in rows:
        for row in np.flatnonzero(owner < 0):
            found("it belongs to no task", view.item(kind, row))
    _names(view, found)
    return found.all


def _names(view: View, found: Found) -> None:
    used = np.zeros(len(view.plan.manifest.names), dtype=np.bool_)
    for table, column in (
        (view.devices, Device.NAME),
        (view.buffers, BufferRow.NAME),
        (view.events, Event.NAME),
        (view.tasks, Task.LABEL),
    ):
        used[table[:, column]] = True
    for name in np.flatnonzero(~used):
        found(f"nothing is called {view.name(name)!r}", view.item("name", name))


def _useful(view: View) -> NDArray[np.bool_]:
    """[tasks] whether a task contributes; walks back from those whose results leave the step."""
    useful = view.operators(lambda operator: operator.name in WRITERS)
    useful[view.arg_task[view.written(BufferKind.STATE)]] = True
    written = view.written(BufferKind.ACTIVATION)
    read = np.zeros(len(view.args), dtype=np.bool_)
    for writer, _ in overlaps(view, written, view.read(BufferKind.ACTIVATION)):
        read[writer] = True
    writers: dict[int, list[int]] = {}
    for arg in written[read[written]].tolist():
        writers.setdefault(int(view.args[arg, Arg.BUFFER]), []).append(int(view.arg_task[arg]))
    silent = np.ones(len(view.tasks), dtype=np.bool_)
    silent[view.arg_task[(view.args[:, Arg.ACCESS] == Access.WRITE) & (view.arg_task >= 0)]] = False
    signallers: dict[int, list[int]] = {}
    for task, event in zip(view.signal_task.tolist(), view.signals.tolist(), strict=True):
        if task >= 0 and silent[task]:
            signallers.setdefault(event, []).append(task)
    open_ = np.flatnonzero(useful).tolist()
    buffers, access = view.args[:, Arg.BUFFER].tolist(), view.args[:, Arg.ACCESS].tolist()
    ranges = view.tasks[:, (Task.ARG_FIRST, Task.ARG_COUNT, Task.WAIT_FIRST, Task.WAIT_COUNT)].tolist()
    while open_:
        first_arg, args, first_wait, waits = ranges[open_.pop()]
        needed = [
            task
            for arg in range(first_arg, first_arg + args)
            if access[arg] == Access.READ
            for task in writers.pop(buffers[arg], ())
        ]
        for event in view.waits[first_wait : first_wait + waits, Wait.EVENT].tolist():
            needed += signallers.pop(event, ())
        for task in needed:
            if not useful[task]:
                useful[task] = True
                open_.append(task)
    return useful
