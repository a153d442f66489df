"""From a task's operand row to its kernel. One compiled function holds all operators for one pair of dtypes."""

import numpy as np

from persistent_engine.manifest import number
from persistent_engine.plan import Register
from persistent_engine.runtime.cpu.jit import kernel
from persistent_engine.runtime.cpu.kernels import experts, gqa, linear, mla, sampling
from persistent_engine.runtime.cpu.kernels.arithmetic import normalise
from persistent_engine.runtime.cpu.kernels.memory import copy, f32, i32, view

__all__ = ["ADDRESS", "COLS", "FIELDS", "MOST_ARGS", "ROWS", "run_task"]

ADDRESS, ROWS, COLS, FIELDS = 0, 1, 2, 3
"""Operand fields of each argument: address of its box (state: offset in the slot), rows and columns of the box."""
MOST_ARGS = 6

EMBED, RMSNORM, MATVEC = number("embed"), number("rmsnorm"), number("matvec")
MATVEC_ADD, GATED = number("matvec_add"), number("gated")
MLA_STORE, MLA_QUERY, MLA_ATTEND, MLA_VALUE = (number(f"mla_{n}") for n in ("store", "query", "attend", "value"))
GQA_STORE, GQA_QUERY, GQA_ATTEND = (number(f"gqa_{n}") for n in ("store", "query", "attend"))
EXPERT_SELECT, EXPERT_GATED = number("expert_select"), number("expert_gated")
EXPERT_DOWN_ADD, SAMPLE, PUT = number("expert_down_add"), number("sample"), number("put")
POSITION, TOKEN, NEXT = int(Register.POSITION), int(Register.TOKEN), int(Register.NEXT)
TOP_K, SEED, TEMPERATURE = int(Register.TOP_K), int(Register.SEED), int(Register.TEMPERATURE)
TOP_P, MIN_P = int(Register.TOP_P), int(Register.MIN_P)


@kernel
def _linear(code, a, weight, up_weight, token, eps):
    if code == EMBED:
        linear.embed(weight, token, a[COLS], f32(a[FIELDS]))
    elif code == RMSNORM:
        normalise(f32(a[0]), 0, a[COLS], eps, f32(a[FIELDS]), f32(a[2 * FIELDS]), 0)
    elif code == MATVEC:
        linear.matvec(weight, f32(a[FIELDS]), f32(a[2 * FIELDS]), a[ROWS], a[COLS])
    elif code == MATVEC_ADD:
        residual, out = f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        linear.matvec_add(weight, f32(a[FIELDS]), residual, out, a[ROWS], a[COLS])
    else:
        x, out = f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        linear.gated(weight, up_weight, 0, x, out, 0, a[ROWS], a[COLS])


@kernel
def _mla(code, a, p, state, weight, position):
    if code == MLA_STORE:
        norm, cos_sin = f32(a[FIELDS]), f32(a[2 * FIELDS])
        mla.store(f32(a[0]), norm, cos_sin, state, position, p[0], np.int64(p[1]), np.int64(p[2]))
    elif code == MLA_QUERY:
        nope, rope, rank, width = np.int64(p[0]), np.int64(p[1]), np.int64(p[2]), np.int64(p[3])
        q, cos_sin, out = f32(a[0]), f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        mla.query(q, weight, cos_sin, out, a[3 * FIELDS + ROWS], position, nope, rope, rank, width)
    elif code == MLA_ATTEND:
        queries, scores, out = f32(a[0]), f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        rank, rope, capacity = np.int64(p[1]), np.int64(p[2]), a[2 * FIELDS + COLS]
        mla.attend(queries, state, scores, out, a[ROWS], capacity, position + 1, np.float32(p[0]), rank, rope)
    else:
        nope, width, rank = np.int64(p[0]), np.int64(p[1]), np.int64(p[2])
        mla.value(f32(a[0]), weight, f32(a[2 * FIELDS]), a[ROWS], nope, width, rank)


@kernel
def _gqa(code, a, p, state, values, position):
    if code == GQA_STORE:
        key, value = f32(a[0]), f32(a[FIELDS])
        norm, cos_sin = f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        gqa.store(key, value, norm, cos_sin, state, values, a[COLS], position, p[0], p[1] != 0.0, np.int64(p[2]))
    elif code == GQA_QUERY:
        q, norm = f32(a[0]), f32(a[FIELDS])
        cos_sin, out = f32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        heads, width = a[3 * FIELDS + ROWS], a[3 * FIELDS + COLS]
        gqa.query(q, norm, cos_sin, out, heads, width, position, p[0], p[1] != 0.0)
    else:
        queries, scores, out = f32(a[0]), f32(a[3 * FIELDS]), f32(a[4 * FIELDS])
        capacity, tile = a[3 * FIELDS + COLS], np.int64(p[1])
        tokens, scale = position + 1, np.float32(p[0])
        gqa.attend(queries, state, values, scores, out, a[ROWS], a[COLS], capacity, tokens, scale, tile)


@kernel
def _experts(code, a, p, first, last, weight, up_weight):
    if code == EXPERT_SELECT:
        ids, weights = i32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        logits, bias, count, active = f32(a[0]), f32(a[FIELDS]), a[COLS], a[2 * FIELDS + COLS]
        groups, kept = np.int64(p[0]), np.int64(p[1])
        experts.select(logits, bias, ids, weights, count, active, groups, kept, p[2], p[3] != 0.0)
    elif code == EXPERT_GATED:
        x, ids, out = f32(a[2 * FIELDS]), i32(a[3 * FIELDS]), f32(a[4 * FIELDS])
        experts.select_gated(weight, up_weight, x, ids, out, first, last, np.int64(p[0]), a[COLS])
    else:
        hidden, ids, weights = f32(a[FIELDS]), i32(a[2 * FIELDS]), f32(a[3 * FIELDS])
        residual, out, active = f32(a[4 * FIELDS]), f32(a[5 * FIELDS]), a[2 * FIELDS + COLS]
        width = np.int64(p[0])
        experts.down_add(weight, hidden, ids, weights, residual, out, first, last, active, width, a[COLS])


@kernel
def run_task(code, a, p, first, last, slot, integers, numbers, weight_like, state_like):
    """Run one task. a: int64 operands, p: float64 parameters, slot: address of the slot being decoded.

    integers, numbers: step registers (int64, float64) by `plan.Register`. weight_like, state_like: empty arrays of
    the dtypes of matrices and of state planes (float32, or bfloat16 as uint16).
    """
    position = integers[POSITION]
    if code <= GATED:
        _linear(code, a, view(a[0], weight_like), view(a[FIELDS], weight_like), integers[TOKEN], p[0])
    elif code == MLA_STORE:
        _mla(code, a, p, view(slot + a[3 * FIELDS], state_like), view(a[0], weight_like), position)
    elif code <= MLA_VALUE:
        _mla(code, a, p, view(slot + a[FIELDS], state_like), view(a[FIELDS], weight_like), position)
    elif code == GQA_ATTEND:
        _gqa(code, a, p, view(slot + a[FIELDS], state_like), view(slot + a[2 * FIELDS], state_like), position)
    elif code <= GQA_ATTEND:
        _gqa(code, a, p, view(slot + a[4 * FIELDS], state_like), view(slot + a[5 * FIELDS], state_like), position)
    elif code <= EXPERT_DOWN_ADD:
        _experts(code, a, p, first, last, view(a[0], weight_like), view(a[FIELDS], weight_like))
    elif code == PUT:
        copy(i32(a[0]), i32(a[FIELDS]), a[ROWS] * a[COLS])
    else:
        vocabulary = a[COLS]
        integers[NEXT] = sampling.sample(
            f32(a[0]),
            f32(a[FIELDS]),
            f32(a[FIELDS] + 4 * vocabulary),
            vocabulary,
            position,
            integers[SEED],
            numbers[TEMPERATURE],
            integers[TOP_K],
            numbers[TOP_P],
            numbers[MIN_P],
        )
