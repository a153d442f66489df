"""Kernels of grouped-query attention. See `manifest.gqa` for what they compute."""

import numpy as np
from numba import njit

from persistent_engine.runtime.cpu.kernels.arithmetic import FAST, axpy4, inverse_rms, softmax
from persistent_engine.runtime.cpu.memory import narrow, widen

__all__ = ["attend", "query", "store"]


@njit(nogil=True, cache=True, fastmath=FAST)
def _factor(x, start, width, eps, normed):
    return inverse_rms(x, start, width, eps) if normed else np.float32(1.0)


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True, fastmath=FAST)
def _score(queries, head, width, key_state, tile, tokens, scores, at, scale):
    for first in range(0, tokens, tile):
        count = min(tile, tokens - first)
        for j in range(count):
            scores[at + first + j] = np.float32(0.0)
        for d in range(width):
            factor, start = queries[head * width + d] * scale, first * width + d * tile
            for j in range(count):
                scores[at + first + j] += factor * widen(key_state[start + j])


@njit(nogil=True, cache=True, fastmath=FAST)
def attend(queries, key_state, value_state, scores, out, heads, width, capacity, tokens, scale, tile):
    """Softmax attention of the heads that share one key-value head."""
    for head in range(heads):
        at, base = head * capacity, head * width
        _score(queries, head, width, key_state, tile, tokens, scores, at, scale)
        inverse = softmax(scores, at, tokens)
        for i in range(width):
            out[base + i] = np.float32(0.0)
        token = 0
        while token + 4 <= tokens:
            s0, s1, s2, s3 = scores[at + token], scores[at + token + 1], scores[at + token + 2], scores[at + token + 3]
            axpy4(out, base, value_state, token * width, width, width, s0, s1, s2, s3)
            token += 4
        while token < tokens:
            for i in range(width):
                out[base + i] += scores[at + token] * widen(value_state[token * width + i])
            token += 1
        for i in range(width):
            out[base + i] *= inverse
