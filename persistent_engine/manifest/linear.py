"""Embedding, normalisation and matrix-vector operators."""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.formats import to_float
from persistent_engine.manifest.operator import define
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
    define(
        "embed",
        ("table matrix [v,k] @ k*M", ">out f32 [1,k]"),
        (),
        "",
        _embed,
        flops="0",
        cpu="linear.embed",
    ),
    define(
        "rmsnorm",
        ("x f32 [1,k]", "weight vector [1,k]", ">out f32 [1,k]"),
        ("eps",),
        "",
        _rmsnorm,
        flops="4*k*M",
        cpu="arithmetic.normalise",
    ),
    define(
        "matvec",
        ("weight matrix [rows,k]", "x f32 [1,k]", ">out f32 [1,rows]"),
        (),
        "output rows",
        _matvec,
        flops="2*rows*k*M",
        cpu="linear.matvec",
    ),
    define(
        "matvec_add",
        ("weight matrix [rows,k]", "x f32 [1,k]", "residual f32 [1,rows]", ">out f32 [1,rows]"),
        (),
        "output rows",
        _matvec_add,
        flops="(2*k+1)*rows*M",
        cpu="linear.matvec_add",
    ),
    define(
        "gated",
        ("gate_weight matrix [rows,k]", "up_weight matrix [rows,k]", "x f32 [1,k]", ">out f32 [1,rows]"),
        (),
        "output rows",
        _gated,
        flops="(4*k+5)*rows*M",
        cpu="linear.gated",
    ),
)
"""embed: one row of the table, chosen by the TOKEN register. gated: silu(gate x) * (up x)."""
