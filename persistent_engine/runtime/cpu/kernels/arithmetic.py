"""Loops that every kernel is made of. Each sums in one fixed order, so results do not depend on tiling (E2)."""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from persistent_engine.runtime.cpu.memory import widen

__all__ = ["FAST", "axpy4", "dot", "exponential", "inverse_rms", "normalise", "softmax"]

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered by the compiler (once, at compilation); infinities and NaN keep their meaning."""


@intrinsic
def _power_of_two(typingctx, exponent):
    """2.0 ** exponent for an int32 in [-126, 127], as float32."""

    def generate(context, builder, signature, args):
        word = ir.IntType(32)
        biased = builder.shl(builder.add(args[0], ir.Constant(word, 127)), ir.Constant(word, 23))
        return builder.bitcast(biased, ir.FloatType())

    return types.float32(types.int32), generate


@njit(nogil=True, cache=True)
def exponential(x):
    """exp of a float32, about 1 ulp, in operations that vectorise. Source: Cephes expf (range reduction, polynomial)."""
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


@njit(nogil=True, cache=True, fastmath=FAST)
def dot(a, first, b, start, count):
    """sum of a[first + i] x b[start + i], float32; a may be bfloat16."""
    total = np.float32(0.0)
    for i in range(count):
        total += widen(a[first + i]) * b[start + i]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def axpy4(out, start, rows, first, stride, count, w0, w1, w2, w3):
    """out[start + i] += the sum of four rows of `rows`, `stride` apart from `first`, times their weights."""
    for i in range(count):
        at = first + i
        out[start + i] += (
            w0 * widen(rows[at])
            + w1 * widen(rows[at + stride])
            + w2 * widen(rows[at + 2 * stride])
            + w3 * widen(rows[at + 3 * stride])
        )


@njit(nogil=True, cache=True, fastmath=FAST)
def inverse_rms(x, start, count, eps):
    """1 / sqrt(mean(x^2) + eps) over `count` elements."""
    total = np.float32(0.0)
    for i in range(count):
        total += x[start + i] * x[start + i]
    return np.float32(1.0) / np.sqrt(total / np.float32(count) + np.float32(eps))


@njit(nogil=True, cache=True, fastmath=FAST)
def normalise(x, start, count, eps, weight, out, at):
    """out = x / sqrt(mean(x^2) + eps) x weight, over `count` elements."""
    factor = inverse_rms(x, start, count, eps)
    for i in range(count):
        out[at + i] = x[start + i] * factor * weight[i]


@njit(nogil=True, cache=True, fastmath=FAST)
def softmax(scores, start, count):
    """Replace scores by exp(score - largest); gives 1 / their sum."""
    largest = scores[start]
    for i in range(1, count):
        largest = max(largest, scores[start + i])
    for i in range(count):
        scores[start + i] = exponential(scores[start + i] - largest)
    total = np.float32(0.0)
    for i in range(count):
        total += scores[start + i]
    return np.float32(1.0) / total
