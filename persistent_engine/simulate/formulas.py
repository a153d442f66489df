"""Costs of a plan's tasks from the formulas of their operators.

What a task reads of weights and state comes from its device's memory; activations are served by the on-chip cache,
which holds them all; what it writes to another device goes over a link. Numbers that say where to read (token ids,
experts, chosen positions) are read before what they point at, so they cost a round trip of their own. Tasks that draft
run one token of each request, whatever the step verifies. What all tiles of a task need (the vector of a matrix-vector
product) is read from memory once and from the cache by each lane that has a tile.
"""

import dataclasses
import functools

from persistent_engine.manifest import OPERATORS, Operator, Workload, cost
from persistent_engine.manifest.formula import compile_formula
from persistent_engine.manifest.signature import Argument
from persistent_engine.models.dsa import DRAFT
from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Plan, Task, Worker
from persistent_engine.simulate.cost import Work
from speedtier.errors import PlanError

__all__ = ["FormulaCosts"]

PASSES = {"index_select": 3}
"""Times that an operator goes over what it reads, where that is not once. index_select: radix selection of 32-bit keys
by 11-bit digits ("Parallel Top-K Algorithms on GPU: A Comprehensive Study and New Methods", SC 2023); where selection
was measured on the machine, it takes as long as measured."""

_BY_NAME = {operator.name: operator for operator in OPERATORS}


_Use = tuple[int, int, int, int, bool, bool]
"""An argument: rows and columns of its box, dtype, kind, whether it is on the task's device, whether it is a matrix."""


class _Rows:
    """A plan's tables as lists, which are read faster by the row, and its operators."""

    def __init__(self, plan: Plan) -> None:
        missing = [name for name in plan.manifest.operators if name not in _BY_NAME]
        if missing:
            raise PlanError(f"operators {', '.join(missing)} are not in the manifest; compile the plan again")
        self.plan = plan
        self.operators = [_BY_NAME[name] for name in plan.manifest.operators]
        self.tasks, self.args, self.buffers = plan.tasks.tolist(), plan.args.tolist(), plan.buffers.tolist()
        self.params, self.lanes = plan.params[:, 0].tolist(), plan.workers[:, Worker.LANES].tolist()
        self.drafts = {number for number, name in enumerate(plan.manifest.names) if name.startswith(DRAFT)}


class FormulaCosts:
    """`Costs` by `manifest.cost`. Operators are found by the names in the plan's manifest.

    Tasks of one shape have one cost, so it is worked out once for each shape and step.
    """

    def __init__(self) -> None:
        self._rows: _Rows | None = None
        self._known: dict[tuple[object, ...], Work] = {}

    def work(self, plan: Plan, task: int, load: Workload) -> Work:
        """As `Costs.work`. Raises: PlanError for arguments that do not fit their operator."""
        if self._rows is None or self._rows.plan is not plan:
            self._rows = _Rows(plan)
        rows = self._rows
        row = rows.tasks[task]
        if load.tokens > 1 and row[Task.LABEL] in rows.drafts:
            load = dataclasses.replace(load, tokens=1)
        args = rows.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]]
        uses = []
        for arg in args:
            buffer = rows.buffers[arg[Arg.BUFFER]]
            size = (arg[Arg.ROW_LAST] - arg[Arg.ROW_FIRST], arg[Arg.COL_LAST] - arg[Arg.COL_FIRST])
            here = buffer[BufferRow.DEVICE] == row[Task.DEVICE]
            uses.append((*size, buffer[BufferRow.DTYPE], buffer[BufferRow.KIND], here, buffer[BufferRow.ROWS] > 1))
        first, count = row[Task.PARAM_FIRST], row[Task.PARAM_COUNT]
        params = tuple(rows.params[first : first + count])
        operator = rows.operators[row[Task.OPERATOR]]
        tiles = (row[Task.TILES], min(row[Task.TILES], rows.lanes[row[Task.WORKER]]))
        shape = (operator.name, *uses, params, row[Task.ROW_FIRST], row[Task.ROW_LAST], tiles, load)
        work = self._known.get(shape)
        if work is None:
            span = (row[Task.ROW_FIRST], row[Task.ROW_LAST])
            try:
                work = _work(operator, uses, params, span, tiles, load)
            except ValueError as error:
                raise PlanError(f"task {task}: {error}; `speedtier plan check` says more") from error
            self._known[shape] = work
        return work


@functools.cache
def _is_cut(argument: Argument) -> bool:
    """Whether each tile takes its own part of the argument."""
    texts = (argument.rows, argument.cols, argument.touched)
    return any({"rows", "first", "last"} & set(compile_formula(text).names) for text in texts if text)


def _work(
    operator: Operator,
    uses: list[_Use],
    params: tuple[float, ...],
    span: tuple[int, int],
    tiles: tuple[int, int],
    load: Workload,
) -> Work:
    """tiles: how many, and how many lanes have one."""
    boxes = [(0, rows, 0, cols) for rows, cols, *_ in uses]
    dtypes = [Dtype(use[2]) for use in uses]
    costs = cost(operator, boxes, dtypes, params, span, load)
    memory = cache = link = 0.0
    passes, pointed, arithmetic = PASSES.get(operator.name, 1), False, None
    arguments = operator.expand(len(uses))
    for argument, use, dtype, size, written in zip(arguments, uses, dtypes, costs.bytes, costs.written, strict=True):
        _, _, _, kind, here, matrix = use
        pointed |= dtype is Dtype.I32 and not written
        if not written and not _is_cut(argument):
            cache += (tiles[1] - 1) * size * passes
        if not here:
            link += size
        elif kind == BufferKind.ACTIVATION:
            cache += size if written else size * passes
        else:
            memory += size
            if matrix and arithmetic is None:
                arithmetic = dtype
    trips = (1, int(pointed)) if memory else (0, passes + int(pointed) if cache else 0)
    dtype_name = (Dtype.F32 if arithmetic is None else arithmetic).name
    chosen = uses[1][1] if operator.name == "index_select" else 0
    scores = float(load.context) if 0 < chosen < load.context else 0.0
    return Work(memory, cache, link, costs.flops, dtype_name, *trips, tiles[0], scores)
