"""Operator: what one kind of task computes, independent of who computes it.

An entry declares its arguments (see `signature` for the notation), its parameters, where it may run, what it costs, and
gives the reference: plain numpy on the task's argument boxes. The reference is the definition; every kernel is compared
with it buffer by buffer.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np

from persistent_engine.manifest.cost import Cost, Workload
from persistent_engine.manifest.formula import compile_formula
from persistent_engine.manifest.signature import DTYPES, Argument, Box, bind_shapes, parse
from persistent_engine.plan import Dtype, Role, WarpRole

__all__ = [
    "COMMUNICATION",
    "COMPUTATION",
    "SELECTION",
    "Operator",
    "Reference",
    "Registers",
    "check_dtypes",
    "cost",
    "define",
    "unify",
]

COMPUTATION = frozenset({WarpRole.COMPUTE})
SELECTION = frozenset({WarpRole.COMPUTE, WarpRole.SELECT})
COMMUNICATION = frozenset({WarpRole.COMM})
"""Warp roles beside ALL that run products and norms, choices of the largest, and writes to other devices."""

Registers = Mapping[int, float]
"""Step registers by `plan.Register` number."""

Reference = Callable[[Sequence[np.ndarray], Sequence[float], tuple[int, int], dict[int, float]], None]
"""reference(args, params, (row_first, row_last), registers): writes its outputs in place. `args` are the boxes of
the task's arguments, 2-D views (bfloat16 as uint16); a state plane is given whole, as a flat array."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """One entry of the manifest.

    arguments: declared ones, in order. params: names of the numbers that a task carries. rows: what one unit of the
    tileable range is; "" when a task cannot be split (its range is then 0 to 1). extent: formula of the end of the
    tileable range where the reference looks at it, else "". whole: formulas that must be whole numbers of at least 1,
    for what shapes do not pin down. flops: formula. warp_roles: beside ALL, which runs
    everything. device_roles: see `allowed_on`. cpu: name of the CPU kernel in `runtime.cpu.kernels`, "" for none.
    """

    name: str
    arguments: tuple[Argument, ...]
    params: tuple[str, ...]
    rows: str
    reference: Reference
    flops: str = "0"
    extent: str = ""
    whole: tuple[str, ...] = ()
    warp_roles: frozenset[WarpRole] = COMPUTATION
    device_roles: frozenset[Role] = frozenset(Role)
    cpu: str = ""

    @property
    def args(self) -> tuple[str, ...]:
        """Names, those written marked with a leading `>`."""
        return tuple(argument.marked for argument in self.arguments)

    @property
    def shapes(self) -> tuple[str, ...]:
        """`[rows,cols]` of each argument, as declared."""
        return tuple(argument.shape for argument in self.arguments)

    @property
    def dtypes(self) -> tuple[frozenset[Dtype], ...]:
        """Which dtypes each argument may have. Two arguments of one dtype class have the same (`check_dtypes`)."""
        return tuple(DTYPES[argument.dtypes] for argument in self.arguments)

    @property
    def remote(self) -> frozenset[str]:
        """Names of the arguments that may lie on another device."""
        return frozenset(argument.name for argument in self.arguments if argument.remote)

    def expand(self, count: int) -> tuple[Argument, ...]:
        """The arguments of a task that has `count`: a repeated last one is repeated. Raises: ValueError."""
        last = self.arguments[-1]
        if last.many and count >= len(self.arguments):
            return self.arguments + (last,) * (count - len(self.arguments))
        if count != len(self.arguments):
            more = " or more" if last.many else ""
            raise ValueError(f"{self.name} takes {len(self.arguments)}{more} arguments, not {count}")
        return self.arguments

    def allowed_on(self, role: Role, roles: Set[Role]) -> bool:
        """Whether a device of `role` may run it in a plan whose devices have `roles`.

        An operator of one role runs on devices of that role; if the plan has none, on any.
        """
        return role in self.device_roles or not self.device_roles & roles


def define(
    name: str,
    arguments: Sequence[str],
    params: Sequence[str],
    rows: str,
    reference: Reference,
    *,
    flops: str,
    extent: str = "",
    whole: Sequence[str] = (),
    warp_roles: frozenset[WarpRole] = COMPUTATION,
    device_role: Role | None = None,
    cpu: str = "",
) -> Operator:
    """An operator from declarations. device_role None: any. Raises: ValueError for one that cannot be read."""
    parsed = tuple(parse(argument) for argument in arguments)
    roles = frozenset(Role) if device_role is None else frozenset({device_role})
    return Operator(name, parsed, tuple(params), rows, reference, flops, extent, tuple(whole), warp_roles, roles, cpu)


def _bind(operator: Operator, boxes: Sequence[Box], params: Sequence[float], rows: tuple[int, int]) -> dict[str, float]:
    """Sizes by name. Raises: ValueError."""
    arguments = operator.expand(len(boxes))
    if len(params) != len(operator.params):
        raise ValueError(f"{operator.name} takes {len(operator.params)} params, not {len(params)}")
    for name, value in zip(operator.params, params, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, not a number to reckon with")
    if not 0 <= rows[0] < rows[1] or (not operator.rows and rows != (0, 1)):
        raise ValueError(f"rows {rows[0]} to {rows[1]} are no range of {operator.rows or 'an operator without one'}")
    known = dict(zip(operator.params, params, strict=True))
    known |= {"rows": rows[1] - rows[0], "first": rows[0], "last": rows[1]}
    sizes = bind_shapes(arguments, boxes, known)
    for text in operator.whole:
        value = compile_formula(text)(sizes)
        if not (value >= 1 and value % 1 == 0):
            raise ValueError(f"{text} is {value:g}, not a whole number of at least 1")
    if operator.extent and rows[1] > compile_formula(operator.extent)(sizes):
        raise ValueError(f"rows {rows[0]} to {rows[1]} pass {operator.extent}, the end of the {operator.rows}")
    return sizes


def unify(operator: Operator, boxes: Sequence[Box], params: Sequence[float], rows: tuple[int, int]) -> str | None:
    """None if the boxes, params and range of a task fit the operator's signature, else what does not."""
    try:
        _bind(operator, boxes, params, rows)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        return str(error)
    return None


def check_dtypes(operator: Operator, dtypes: Sequence[Dtype]) -> str | None:
    """None if the arguments' dtypes fit the operator's signature, else what does not."""
    try:
        arguments = operator.expand(len(dtypes))
    except ValueError as error:
        return str(error)
    seen: dict[str, Dtype] = {}
    for argument, dtype in zip(arguments, dtypes, strict=True):
        if dtype not in DTYPES[argument.dtypes]:
            return f"{argument.name}: dtype is {dtype.name}; it may be {_names(argument.dtypes)}"
        if seen.setdefault(argument.dtypes, dtype) != dtype:
            return f"{argument.name}: dtype is {dtype.name}, that of another {argument.dtypes} argument is not"
    return None


def _names(dtypes: str) -> str:
    return ", ".join(dtype.name for dtype in sorted(DTYPES[dtypes]))


def cost(
    operator: Operator,
    boxes: Sequence[Box],
    dtypes: Sequence[Dtype],
    params: Sequence[float],
    rows: tuple[int, int],
    workload: Workload,
) -> Cost:
    """Flops and bytes of a task in one step of `workload`.

    Matrices, vectors and what has a formula of its own are read as often as that says; other arguments once a token.
    Raises: ValueError for boxes that do not fit.
    """
    names = {**_bind(operator, boxes, params, rows), **workload.names}
    arguments = operator.expand(len(boxes))
    sizes = []
    for argument, box, dtype in zip(arguments, boxes, dtypes, strict=True):
        elements: float = (box[1] - box[0]) * (box[3] - box[2])
        if argument.touched:
            elements = compile_formula(argument.touched)(names)
        elif argument.dtypes not in ("matrix", "vector"):
            elements *= names["M"]
        sizes.append(elements * dtype.bits / 8)
    flops = float(compile_formula(operator.flops)(names))
    return Cost(flops, tuple(sizes), tuple(argument.written for argument in arguments))
