"""Embedding, normalisation and matrix-vector operators."""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.operator import Operator, to_float
from persistent_engine.plan import Register

__all__ = ["LINEAR"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _embed(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    table, out = args
    out[0] = to_float(table[int(regs[Register.TOKEN])])


def _rmsnorm(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    x, weight, out = args
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    out[:] = x / np.sqrt(mean + params[0]) * to_float(weight)


def _matvec(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    weight, x, out = args
    out[0] = to_float(weight) @ x[0]


def _matvec_add(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    weight, x, residual, out = args
    out[0] = residual[0] + to_float(weight) @ x[0]


def _gated(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    gate_weight, up_weight, x, out = args
    gate = to_float(gate_weight) @ x[0]
    out[0] = gate / (1 + np.exp(-gate)) * (to_float(up_weight) @ x[0])


LINEAR = (
    Operator("embed", ("table", ">out"), (), "", _embed),
    Operator("rmsnorm", ("x", "weight", ">out"), ("eps",), "", _rmsnorm),
    Operator("matvec", ("weight", "x", ">out"), (), "output rows", _matvec),
    Operator("matvec_add", ("weight", "x", "residual", ">out"), (), "output rows", _matvec_add),
    Operator("gated", ("gate_weight", "up_weight", "x", ">out"), (), "output rows", _gated),
)
"""embed: one row of the table, chosen by the TOKEN register. gated: silu(gate x) * (up x)."""
