"""Loops that every kernel is made of. Each sums in one fixed order, so results do not depend on tiling (E2).

Each takes its slices first and counts them from 0: with `array[offset + i]` numba keeps its wrap-around of negative
indices in the loop, which then does not vectorise (measured: 8 against 64 GB/s in a matrix-vector product).
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from persistent_engine.runtime.cpu.jit import fast_kernel, kernel
from persistent_engine.runtime.cpu.kernels.memory import widen

__all__ = ["axpy", "dot", "exponential", "fill", "inverse_rms", "normalise", "softmax", "weighted_rows"]


@intrinsic
def _power_of_two(typingctx, exponent):
    """2.0 ** exponent for an int32 in [-126, 127], as float32."""

    def generate(context, builder, signature, args):
        word = ir.IntType(32)
        biased = builder.shl(builder.add(args[0], ir.Constant(word, 127)), ir.Constant(word, 23))
        return builder.bitcast(biased, ir.FloatType())

    return types.float32(types.int32), generate


@kernel
def exponential(x):
    """exp of a float32, about 1 ulp, in operations that vectorise. Source: Cephes expf (reduction, polynomial)."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    whole = np.floor(x * np.float32(1.44269504088896341) + np.float32(0.5))
    x = x - whole * np.float32(0.693359375) - whole * np.float32(-2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * x + np.float32(1.3981999507e-3)
    y = y * x + np.float32(8.3334519073e-3)
    y = y * x + np.float32(4.1665795894e-2)
    y = y * x + np.float32(1.6666665459e-1)
    y = y * x + np.float32(5.0000001201e-1)
    y = y * x * x + x + np.float32(1.0)
    return y * _power_of_two(np.int32(whole))


@fast_kernel
def dot(a, first, b, start, count):
    """sum of a[first + i] x b[start + i], float32; a may be bfloat16."""
    left, right = a[first : first + count], b[start : start + count]
    total = np.float32(0.0)
    for i in range(count):
        total += widen(left[i]) * right[i]
    return total


@fast_kernel
def fill(out, start, count, value):
    """out[start + i] = value."""
    target = out[start : start + count]
    for i in range(count):
        target[i] = value


@fast_kernel
def axpy(out, start, row, first, count, weight):
    """out[start + i] += weight x row[first + i]."""
    target, source = out[start : start + count], row[first : first + count]
    for i in range(count):
        target[i] += weight * widen(source[i])


@fast_kernel
def axpy4(out, start, rows, first, stride, count, w0, w1, w2, w3):
    """out[start + i] += the sum of four rows of `rows`, `stride` apart from `first`, times their weights."""
    target = out[start : start + count]
    r0, r1 = rows[first : first + count], rows[first + stride : first + stride + count]
    r2, r3 = rows[first + 2 * stride :][:count], rows[first + 3 * stride :][:count]
    for i in range(count):
        target[i] += w0 * widen(r0[i]) + w1 * widen(r1[i]) + w2 * widen(r2[i]) + w3 * widen(r3[i])


@fast_kernel
def weighted_rows(out, start, rows, stride, width, weights, at, first, last):
    """out[start + i] += the sum over rows [first, last), `stride` apart, of weights[at + row] x row[i]."""
    row = first
    while row + 4 <= last:
        w0, w1, w2, w3 = weights[at + row], weights[at + row + 1], weights[at + row + 2], weights[at + row + 3]
        axpy4(out, start, rows, row * stride, stride, width, w0, w1, w2, w3)
        row += 4
    while row < last:
        axpy(out, start, rows, row * stride, width, weights[at + row])
        row += 1


@fast_kernel
def inverse_rms(x, start, count, eps):
    """1 / sqrt(mean(x^2) + eps) over `count` elements."""
    return np.float32(1.0) / np.sqrt(dot(x, start, x, start, count) / np.float32(count) + np.float32(eps))


@fast_kernel
def normalise(x, start, count, eps, weight, out, at):
    """out = x / sqrt(mean(x^2) + eps) x weight, over `count` elements."""
    factor = inverse_rms(x, start, count, eps)
    source, target = x[start : start + count], out[at : at + count]
    for i in range(count):
        target[i] = source[i] * factor * weight[i]


@fast_kernel
def softmax(scores, start, count):
    """Replace scores by their softmax."""
    values = scores[start : start + count]
    largest = values[0]
    for i in range(1, count):
        largest = max(largest, values[i])
    for i in range(count):
        values[i] = exponential(values[i] - largest)
    total = np.float32(0.0)
    for i in range(count):
        total += values[i]
    inverse = np.float32(1.0) / total
    for i in range(count):
        values[i] *= inverse
