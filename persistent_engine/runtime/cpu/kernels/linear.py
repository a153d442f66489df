"""Kernels of embedding, normalisation and matrix-vector products. See `manifest.linear` for what they compute."""

import numpy as np

from persistent_engine.runtime.cpu.jit import fast_kernel, kernel
from persistent_engine.runtime.cpu.kernels.arithmetic import dot, exponential
from persistent_engine.runtime.cpu.kernels.memory import widen

__all__ = ["embed", "gated", "matvec", "matvec_add"]


@kernel
def embed(table, row, width, out):
    """out[width] = table[row]."""
    source = table[row * width : (row + 1) * width]
    for i in range(width):
        out[i] = widen(source[i])


@fast_kernel
def matvec(weight, x, out, rows, cols):
    """out[rows] = weight[rows, cols] x[cols]."""
    for row in range(rows):
        out[row] = dot(weight, row * cols, x, 0, cols)


@fast_kernel
def matvec_add(weight, x, residual, out, rows, cols):
    """out = residual + weight x."""
    for row in range(rows):
        out[row] = residual[row] + dot(weight, row * cols, x, 0, cols)


@fast_kernel
def gated(gate_weight, up_weight, first, x, out, at, rows, cols):
    """out[at + i] = silu(gate x) (up x) for weight rows first + i."""
    for row in range(rows):
        start = (first + row) * cols
        gate = dot(gate_weight, start, x, 0, cols)
        up = dot(up_weight, start, x, 0, cols)
        out[at + row] = gate / (np.float32(1.0) + exponential(-gate)) * up
