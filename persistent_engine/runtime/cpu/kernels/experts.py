"""Kernels of routed experts. See `manifest.experts` for what they compute."""

import math

import numpy as np

from persistent_engine.runtime.cpu.jit import fast_kernel, kernel
from persistent_engine.runtime.cpu.kernels.arithmetic import dot
from persistent_engine.runtime.cpu.kernels.linear import gated

__all__ = ["down_add", "select", "select_gated"]

UNCHOSEN = -math.inf


@kernel
def _score(logits, expert):
    return 1.0 / (1.0 + math.exp(-np.float64(logits[expert])))


@kernel
def _group_score(logits, bias, group, size):
    """Sum of the two largest biased scores of a group."""
    first = second = UNCHOSEN
    for expert in range(group * size, (group + 1) * size):
        score = _score(logits, expert) + bias[expert]
        if score > first:
            first, second = score, first
        elif score > second:
            second = score
    return first + second if size > 1 else first


@kernel
def _kept(logits, bias, group, groups, kept, size):
    """Whether fewer than `kept` groups come before this one (larger score, or equal and lower number)."""
    own, before = _group_score(logits, bias, group, size), 0
    for other in range(groups):
        score = _group_score(logits, bias, other, size)
        if score > own or (score == own and other < group):
            before += 1
    return before < kept


@kernel
def select(logits, bias, ids, weights, count, active, groups, kept, scaling, renormalise):
    """Choose `active` of `count` experts and their weights, without scratch memory."""
    size = count // groups
    for slot in range(active):
        best, chosen = UNCHOSEN, -1
        for group in range(groups):
            if not _kept(logits, bias, group, groups, kept, size):
                continue
            for expert in range(group * size, (group + 1) * size):
                taken = False
                for earlier in range(slot):
                    taken |= ids[earlier] == expert
                score = _score(logits, expert) + bias[expert]
                if not taken and (score > best or chosen < 0):
                    best, chosen = score, expert
        ids[slot] = chosen
        weights[slot] = np.float32(_score(logits, chosen))
    total = 1e-20
    for slot in range(active):
        total += weights[slot]
    factor = scaling / total if renormalise else scaling
    for slot in range(active):
        weights[slot] = np.float32(weights[slot] * factor)


@kernel
def select_gated(gate_weight, up_weight, x, ids, out, first, last, width, cols):
    """The gated half of the chosen experts, for hidden rows [first, last) counted over all chosen experts."""
    unit = first
    while unit < last:
        slot, row = unit // width, unit % width
        rows = min(last - unit, width - row)
        gated(gate_weight, up_weight, ids[slot] * width + row, x, out, unit - first, rows, cols)
        unit += rows


@fast_kernel
def down_add(down_weight, hidden, ids, weights, residual, out, first, last, active, width, cols):
    """out[i] = residual[i] + the weighted sum over chosen experts, for output rows [first, last)."""
    for row in range(last - first):
        total = residual[row]
        for slot in range(active):
            start = (ids[slot] * width + first + row) * cols
            total += weights[slot] * dot(down_weight, start, hidden, slot * cols, cols)
        out[row] = total
