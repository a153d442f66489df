"""P2: every task fits its operator's contract.

Argument and parameter counts, read and write marks, dtypes, shapes and the tileable range are those that the manifest
declares; parameters are finite.
"""

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import View
from persistent_engine.manifest import Operator, check_dtypes, unify
from persistent_engine.plan import Access, Arg, BufferRow, Dtype, Task

__all__ = ["rule"]

Box = tuple[int, int, int, int]
Case = tuple[int, tuple[int, ...], tuple[int, ...], tuple[Box, ...], tuple[float, ...], tuple[int, int]]


def rule(view: View) -> list[Finding]:
    """Findings of P2. Tasks that are alike in all that the contract asks are looked at once."""
    found = Found("P2")
    outcomes: dict[Case, str] = {}
    boxes = [tuple(row) for row in view.args[:, Arg.ROW_FIRST : Arg.WIDTH].tolist()]
    dtypes = view.buffers[view.args[:, Arg.BUFFER], BufferRow.DTYPE].tolist()
    access, params = view.args[:, Arg.ACCESS].tolist(), view.params.tolist()
    finite = np.isfinite(view.params)
    for task, row in enumerate(view.tasks.tolist()):
        args = slice(row[Task.ARG_FIRST], row[Task.ARG_FIRST] + row[Task.ARG_COUNT])
        numbers = slice(row[Task.PARAM_FIRST], row[Task.PARAM_FIRST] + row[Task.PARAM_COUNT])
        operator = view.operator(task)
        if not finite[numbers].all():
            found(f"{operator.name}: a parameter is not finite: {params[numbers]}", view.item("task", task))
            continue
        if row[Task.ARG_COUNT] > len(operator.arguments) and not operator.arguments[-1].many:
            wrong = f"{row[Task.ARG_COUNT]} arguments, not {len(operator.arguments)}"
        elif row[Task.PARAM_COUNT] != len(operator.params):
            wrong = f"{row[Task.PARAM_COUNT]} parameters, not {len(operator.params)}"
        else:
            rows = (row[Task.ROW_FIRST], row[Task.ROW_LAST])
            case: Case = (
                row[Task.OPERATOR],
                tuple(access[args]),
                tuple(dtypes[args]),
                tuple(boxes[args]),
                tuple(params[numbers]),
                rows,
            )
            if case not in outcomes:
                outcomes[case] = _mismatch(operator, case)
            wrong = outcomes[case]
        if wrong:
            found(f"{operator.name}: {wrong}", view.item("task", task))
    return found.all


def _mismatch(operator: Operator, case: Case) -> str:
    """What does not fit, "" when all does."""
    _, access, dtypes, boxes, params, rows = case
    try:
        arguments = operator.expand(len(boxes))
    except ValueError as error:
        return str(error)
    for argument, given in zip(arguments, access, strict=True):
        if argument.written != (given == Access.WRITE):
            return f"{argument.name} is {'written' if argument.written else 'read'}, the plan says otherwise"
    return check_dtypes(operator, [Dtype(dtype) for dtype in dtypes]) or unify(operator, boxes, params, rows) or ""
