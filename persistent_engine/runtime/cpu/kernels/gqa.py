"""Kernels of grouped-query attention. See `manifest.gqa` for what they compute."""

import numpy as np

from persistent_engine.runtime.cpu.jit import fast_kernel
from persistent_engine.runtime.cpu.kernels.arithmetic import axpy, fill, inverse_rms, softmax, weighted_rows
from persistent_engine.runtime.cpu.kernels.memory import narrow

__all__ = ["attend", "query", "store"]


@fast_kernel
def _factor(x, start, width, eps, normed):
    return inverse_rms(x, start, width, eps) if normed else np.float32(1.0)


@fast_kernel
def store(key, value, weight, cos_sin, key_state, value_state, width, position, eps, normed, tile):
    """Normalise and rotate the key into its tile's column, copy the value into its row."""
    half, angle = width // 2, position * width
    factor = _factor(key, 0, width, eps, normed)
    start = position // tile * tile * width + position % tile
    for i in range(half):
        cos, sin = cos_sin[angle + i], cos_sin[angle + half + i]
        low, high = key[i] * factor, key[half + i] * factor
        if normed:
            low, high = low * weight[i], high * weight[half + i]
        key_state[start + i * tile] = narrow(key_state, low * cos - high * sin)
        key_state[start + (half + i) * tile] = narrow(key_state, high * cos + low * sin)
    for i in range(width):
        value_state[position * width + i] = narrow(value_state, value[i])


@fast_kernel
def query(q, weight, cos_sin, out, heads, width, position, eps, normed):
    """Normalise and rotate each head's query."""
    half, angle = width // 2, position * width
    for head in range(heads):
        at = head * width
        factor = _factor(q, at, width, eps, normed)
        for i in range(half):
            cos, sin = cos_sin[angle + i], cos_sin[angle + half + i]
            low, high = q[at + i] * factor, q[at + half + i] * factor
            if normed:
                low, high = low * weight[i], high * weight[half + i]
            out[at + i] = low * cos - high * sin
            out[at + half + i] = high * cos + low * sin


@fast_kernel
def _score(queries, head, width, key_state, tile, tokens, scores, at, scale):
    for first in range(0, tokens, tile):
        count = min(tile, tokens - first)
        fill(scores, at + first, count, np.float32(0.0))
        for d in range(width):
            factor = queries[head * width + d] * scale
            axpy(scores, at + first, key_state, first * width + d * tile, count, factor)


@fast_kernel
def attend(queries, key_state, value_state, scores, out, heads, width, capacity, tokens, scale, tile):
    """Softmax attention of the heads that share one key-value head."""
    for head in range(heads):
        at, base = head * capacity, head * width
        _score(queries, head, width, key_state, tile, tokens, scores, at, scale)
        softmax(scores, at, tokens)
        fill(out, base, width, np.float32(0.0))
        weighted_rows(out, base, value_state, width, width, scores, at, 0, tokens)
