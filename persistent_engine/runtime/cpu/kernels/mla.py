"""Kernels of latent attention. See `manifest.mla` for what they compute."""

import numpy as np
from numba import njit

from persistent_engine.runtime.cpu.kernels.arithmetic import FAST, axpy4, dot, inverse_rms, softmax
from persistent_engine.runtime.cpu.memory import narrow, widen

__all__ = ["attend", "query", "store", "value"]

BLOCK = 16
"""Tokens whose cache rows stay in the nearest cache while all heads of a task read them."""


@njit(nogil=True, cache=True, fastmath=FAST)
def store(latent, weight, cos_sin, state, position, eps, rank, rope):
    """Normalise the latent, rotate the rest, write the row of `position`."""
    start, half, angle = position * (rank + rope), rope // 2, position * rope
    factor = inverse_rms(latent, 0, rank, eps)
    for i in range(rank):
        state[start + i] = narrow(state, latent[i] * factor * weight[i])
    for i in range(half):
        cos, sin = cos_sin[angle + i], cos_sin[angle + half + i]
        even, odd = latent[rank + 2 * i], latent[rank + 2 * i + 1]
        state[start + rank + 2 * i] = narrow(state, even * cos - odd * sin)
        state[start + rank + 2 * i + 1] = narrow(state, odd * cos + even * sin)


@njit(nogil=True, cache=True, fastmath=FAST)
def query(q, kv_b, cos_sin, out, heads, position, nope, rope, rank, value):
    """Absorb the key up-projection into each head's query; rotate its rope part."""
    half, angle, width = rope // 2, position * rope, rank + rope
    for head in range(heads):
        at, source = head * width, head * (nope + rope)
        for i in range(rank):
            out[at + i] = np.float32(0.0)
        for d in range(nope):
            scale, start = q[source + d], (head * (nope + value) + d) * rank
            for i in range(rank):
                out[at + i] += scale * widen(kv_b[start + i])
        for i in range(half):
            cos, sin = cos_sin[angle + i], cos_sin[angle + half + i]
            even, odd = q[source + nope + 2 * i], q[source + nope + 2 * i + 1]
            out[at + rank + 2 * i] = even * cos - odd * sin
            out[at + rank + 2 * i + 1] = odd * cos + even * sin


@njit(nogil=True, cache=True, fastmath=FAST)
def attend(queries, state, scores, out, heads, capacity, tokens, scale, rank, rope):
    """Softmax attention of each head's absorbed query over the cache rows [tokens, rank + rope]."""
    width = rank + rope
    for first in range(0, tokens, BLOCK):
        for head in range(heads):
            for token in range(first, min(first + BLOCK, tokens)):
                score = dot(state, token * width, queries, head * width, width)
                scores[head * capacity + token] = score * scale
    for head in range(heads):
        inverse = softmax(scores, head * capacity, tokens)
        for token in range(tokens):
            scores[head * capacity + token] *= inverse
        for i in range(rank):
            out[head * rank + i] = np.float32(0.0)
    for first in range(0, tokens, BLOCK):
        last = min(first + BLOCK, tokens)
        for head in range(heads):
            _accumulate(state, scores, out, head, capacity, first, last, rank, width)


@njit(nogil=True, cache=True, fastmath=FAST)
def _accumulate(state, scores, out, head, capacity, first, last, rank, width):
    token, at = first, head * capacity
    while token + 4 <= last:
        s0, s1, s2, s3 = scores[at + token], scores[at + token + 1], scores[at + token + 2], scores[at + token + 3]
        axpy4(out, head * rank, state, token * width, width, rank, s0, s1, s2, s3)
        token += 4
    while token < last:
        for i in range(rank):
            out[head * rank + i] += scores[at + token] * widen(state[token * width + i])
        token += 1


@njit(nogil=True, cache=True, fastmath=FAST)
def value(context, kv_b, out, heads, nope, value_width, rank):
    """Up-project each head's context to its values."""
    for head in range(heads):
        for row in range(value_width):
            start = (head * (nope + value_width) + nope + row) * rank
            out[head * value_width + row] = dot(kv_b, start, context, head * rank, rank)
