"""Costs of a plan's tasks from the formulas of their operators.

What a task reads of weights and state comes from its device's memory; activations are served by the on-chip cache,
which holds them all; what it writes to another device goes over a link.
"""

from persistent_engine.manifest import OPERATORS, Operator, Workload, cost
from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Plan, Task
from persistent_engine.simulate.cost import Work
from speedtier.errors import PlanError

__all__ = ["FormulaCosts"]

_BY_NAME = {operator.name: operator for operator in OPERATORS}


class FormulaCosts:
    """`Costs` by `manifest.cost`. Operators are found by the names in the plan's manifest."""

    def __init__(self) -> None:
        self._operators: dict[int, list[Operator]] = {}

    def _operator(self, plan: Plan, number: int) -> Operator:
        known = self._operators.get(id(plan))
        if known is None:
            missing = [name for name in plan.manifest.operators if name not in _BY_NAME]
            if missing:
                raise PlanError(f"operators {', '.join(missing)} are not in the manifest; compile the plan again")
            known = self._operators[id(plan)] = [_BY_NAME[name] for name in plan.manifest.operators]
        return known[number]

    def work(self, plan: Plan, task: int, load: Workload) -> Work:
        """As `Costs.work`. Raises: PlanError for arguments that do not fit their operator."""
        row = plan.tasks[task].tolist()
        operator = self._operator(plan, row[Task.OPERATOR])
        args = plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]].tolist()
        buffers = [plan.buffers[arg[Arg.BUFFER]].tolist() for arg in args]
        dtypes = [Dtype(buffer[BufferRow.DTYPE]) for buffer in buffers]
        first, count = row[Task.PARAM_FIRST], row[Task.PARAM_COUNT]
        try:
            costs = cost(
                operator,
                [(a[Arg.ROW_FIRST], a[Arg.ROW_LAST], a[Arg.COL_FIRST], a[Arg.COL_LAST]) for a in args],
                dtypes,
                plan.params[first : first + count, 0].tolist(),
                (row[Task.ROW_FIRST], row[Task.ROW_LAST]),
                load,
            )
        except ValueError as error:
            raise PlanError(f"task {task}: {error}; `speedtier plan check` says more") from error
        memory = cache = link = 0.0
        for buffer, size in zip(buffers, costs.bytes, strict=True):
            if buffer[BufferRow.DEVICE] != row[Task.DEVICE]:
                link += size
            elif buffer[BufferRow.KIND] == BufferKind.ACTIVATION:
                cache += size
            else:
                memory += size
        arithmetic = next(
            (
                dtype
                for dtype, buffer in zip(dtypes, buffers, strict=True)
                if buffer[BufferRow.KIND] != BufferKind.ACTIVATION and buffer[BufferRow.ROWS] > 1
            ),
            Dtype.F32,
        )
        return Work(memory, cache, link, costs.flops, arithmetic.name, 1.0, row[Task.TILES])
