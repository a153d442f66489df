"""Kernels of latent attention. See `manifest.mla` for what they compute."""

import numpy as np

from persistent_engine.runtime.cpu.jit import fast_kernel
from persistent_engine.runtime.cpu.kernels.arithmetic import dot, fill, inverse_rms, softmax, weighted_rows
from persistent_engine.runtime.cpu.kernels.memory import narrow

__all__ = ["attend", "query", "store", "value"]

BLOCK = 16
"""Tokens whose cache rows stay in the nearest cache while all heads of a task read them."""


@fast_kernel
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


@fast_kernel
def query(q, kv_b, cos_sin, out, heads, position, nope, rope, rank, value):
    """Absorb the key up-projection into each head's query; rotate its rope part."""
    half, angle, width = rope // 2, position * rope, rank + rope
    for head in range(heads):
        at, source = head * width, head * (nope + rope)
        fill(out, at, rank, np.float32(0.0))
        weighted_rows(out, at, kv_b[head * (nope + value) * rank :], rank, rank, q, source, 0, nope)
        for i in range(half):
            cos, sin = cos_sin[angle + i], cos_sin[angle + half + i]
            even, odd = q[source + nope + 2 * i], q[source + nope + 2 * i + 1]
            out[at + rank + 2 * i] = even * cos - odd * sin
            out[at + rank + 2 * i + 1] = odd * cos + even * sin


@fast_kernel
def attend(queries, state, scores, out, heads, capacity, tokens, scale, rank, rope):
    """Softmax attention of each head's absorbed query over the cache rows [tokens, rank + rope]."""
    width = rank + rope
    for first in range(0, tokens, BLOCK):
        for head in range(heads):
            for token in range(first, min(first + BLOCK, tokens)):
                score = dot(state, token * width, queries, head * width, width)
                scores[head * capacity + token] = score * scale
    for head in range(heads):
        softmax(scores, head * capacity, tokens)
        fill(out, head * rank, rank, np.float32(0.0))
    for first in range(0, tokens, BLOCK):
        last = min(first + BLOCK, tokens)
        for head in range(heads):
            weighted_rows(out, head * rank, state, width, rank, scores, head * capacity, first, last)


@fast_kernel
def value(context, kv_b, out, heads, nope, value_width, rank):
    """Up-project each head's context to its values."""
    for head in range(heads):
        for row in range(value_width):
            start = (head * (nope + value_width) + nope + row) * rank
            out[head * value_width + row] = dot(kv_b, start, context, head * rank, rank)
