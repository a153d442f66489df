"""P10: every task runs where it may, on what is there.

A task is on the device of its worker and touches buffers of that device, except arguments that its operator declares
remote. A device's role and a worker's warp role allow the operator (warp role ALL allows every one). Weights are not
written; planes of the slot, and nothing else, are where an operator takes planes (whole numbers may be state
anywhere). The next token is decided by one task, on worker 0, which leads the steps.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.registers import WRITERS
from persistent_engine.check.report import Finding, Item
from persistent_engine.check.view import View
from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import Arg, BufferKind, BufferRow, Device, Dtype, Role, Task, WarpRole, Worker

__all__ = ["rule"]


def rule(view: View) -> list[Finding]:
    """Findings of P10."""
    found = Found("P10")
    _devices(view, found)
    _roles(view, found)
    for arg in view.written(BufferKind.WEIGHT):
        found("a weight is written", view.item("buffer", view.args[arg, Arg.BUFFER]), _task(view, arg))
    _planes(view, found)
    _leader(view, found)
    return found.all


def _task(view: View, arg: int) -> Item:
    return view.item("task", view.arg_task[arg])


def _devices(view: View, found: Found) -> None:
    owner = view.workers[view.tasks[:, Task.WORKER], Worker.DEVICE]
    for task in np.flatnonzero(owner != view.tasks[:, Task.DEVICE]):
        found(
            f"it says device {view.tasks[task, Task.DEVICE]}, its worker is on device {owner[task]}",
            view.item("task", task),
            view.item("worker", view.tasks[task, Task.WORKER]),
        )
    home = view.buffers[view.args[:, Arg.BUFFER], BufferRow.DEVICE]
    away = (view.arg_task >= 0) & (home != view.tasks[view.arg_task, Task.DEVICE])
    for arg in np.flatnonzero(away & ~view.remote):
        found(
            f"{view.operator(view.arg_task[arg]).name} on device {view.tasks[view.arg_task[arg], Task.DEVICE]} touches "
            f"a buffer of device {home[arg]}",
            _task(view, arg),
            view.item("buffer", view.args[arg, Arg.BUFFER]),
        )


def _planes(view: View, found: Found) -> None:
    """A runtime finds a plane by its place in the slot, all else by its address: neither may be taken for the other."""
    buffer = view.buffers[view.args[:, Arg.BUFFER]]
    state = (buffer[:, BufferRow.KIND] == BufferKind.STATE) & (view.arg_task >= 0)
    for arg in np.flatnonzero(view.planes & ~state):
        found(
            "a plane of the slot is meant, not this", _task(view, arg), view.item("buffer", view.args[arg, Arg.BUFFER])
        )
    for arg in np.flatnonzero(state & ~view.planes & (buffer[:, BufferRow.DTYPE] != Dtype.I32)):
        found("no plane of the slot is meant here", _task(view, arg), view.item("buffer", view.args[arg, Arg.BUFFER]))


def _roles(view: View, found: Found) -> None:
    roles = frozenset(Role(role) for role in np.unique(view.devices[:, Device.ROLE]).tolist())
    on_device = np.array([[operator.allowed_on(role, roles) for role in Role] for operator in OPERATORS])
    in_worker = np.array([[r in (WarpRole.ALL, *operator.warp_roles) for r in WarpRole] for operator in OPERATORS])
    operators = view.tasks[:, Task.OPERATOR]
    role = view.devices[view.tasks[:, Task.DEVICE], Device.ROLE]
    for task in np.flatnonzero(~on_device[operators, role]):
        message = f"{view.operator(task).name} runs on a device of role {Role(int(role[task])).name}"
        found(message, view.item("task", task), view.item("device", view.tasks[task, Task.DEVICE]))
    worker = view.tasks[:, Task.WORKER]
    warp = view.workers[worker, Worker.WARP_ROLE]
    for task in np.flatnonzero(~in_worker[operators, warp]):
        message = f"{view.operator(task).name} runs in a worker of warp role {WarpRole(int(warp[task])).name}"
        found(message, view.item("task", task), view.item("worker", worker[task]))


def _leader(view: View, found: Found) -> None:
    deciders = np.flatnonzero(view.operators(lambda operator: operator.name in WRITERS))
    for task in deciders[view.tasks[deciders, Task.WORKER] != 0]:
        found("it decides the next token and is not on worker 0, which leads", view.item("task", task))
    if len(deciders) != 1:
        found(f"{len(deciders)} tasks decide the next token", *(view.item("task", task) for task in deciders[:2]))
