"""Reference interpreter: runs a plan's tasks with the manifest's numpy references, in an order that its data allows.

It shares the plan and nothing else with the back ends, which are held against it buffer by buffer (E7).
"""

from collections.abc import Mapping

import numpy as np

from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import Arg, BufferRow, Dtype, Register, Task, Wait, Worker
from persistent_engine.runtime.bind import Binding
from speedtier.errors import PlanError

__all__ = ["interpret"]


def _boxes(binding: Binding, slot: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
    """Views of a task's arguments. A state plane runs from its offset to the end of the slot."""
    boxes = []
    for arg in binding.plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]:
        number = int(arg[Arg.BUFFER])
        if number in binding.planes:
            dtype = np.uint16 if binding.plan.buffers[number, BufferRow.DTYPE] == Dtype.BF16 else np.float32
            boxes.append(slot[binding.planes[number] :].view(dtype))
            continue
        rows = slice(arg[Arg.ROW_FIRST], arg[Arg.ROW_LAST])
        boxes.append(binding.arrays[number][rows, arg[Arg.COL_FIRST] : arg[Arg.COL_LAST]])
    return boxes


def interpret(binding: Binding, slot: np.ndarray, registers: Mapping[Register, float]) -> dict[int, float]:
    """Run one step over `slot` (uint8) in place; gives the registers after it, NEXT among them.

    Queues advance in turn, each as far as its waits allow. Raises: PlanError when no queue can go on.
    """
    plan = binding.plan
    values: dict[int, float] = {int(key): value for key, value in registers.items()}
    counters = np.zeros(len(plan.events), np.int64)
    heads = [int(worker[Worker.TASK_FIRST]) for worker in plan.workers]
    ends = [int(worker[Worker.TASK_FIRST] + worker[Worker.TASK_COUNT]) for worker in plan.workers]
    while heads != ends:
        before = list(heads)
        for queue, end in enumerate(ends):
            while heads[queue] < end:
                row = plan.tasks[heads[queue]]
                waits = plan.waits[row[Task.WAIT_FIRST] : row[Task.WAIT_FIRST] + row[Task.WAIT_COUNT]]
                if any(counters[w[Wait.EVENT]] < w[Wait.COUNT] * (1 - w[Wait.LAG]) for w in waits):
                    break
                operator = OPERATORS[row[Task.OPERATOR]]
                params = plan.params[row[Task.PARAM_FIRST] : row[Task.PARAM_FIRST] + row[Task.PARAM_COUNT], 0]
                rows = (int(row[Task.ROW_FIRST]), int(row[Task.ROW_LAST]))
                operator.reference(_boxes(binding, slot, row), params.tolist(), rows, values)
                signals = plan.signals[row[Task.SIGNAL_FIRST] : row[Task.SIGNAL_FIRST] + row[Task.SIGNAL_COUNT], 0]
                np.add.at(counters, signals, row[Task.TILES])
                heads[queue] += 1
        if heads == before:
            raise PlanError(f"no queue can go on; they stand at tasks {heads}")
    return values
