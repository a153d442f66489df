"""Grouped-query attention. One state plane of transposed key tiles and one of value rows per key-value head.

Source: vllm/v1/attention/backends/cpu_attn.py (layout), Qwen3 and Llama model definitions (order of norm and rotation).
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.attention import attend
from persistent_engine.manifest.operator import Operator, from_float, rotate_half, to_float
from persistent_engine.plan import Register

__all__ = ["GQA"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _norm_rotate(x: np.ndarray, weight: np.ndarray, cos_sin: np.ndarray, eps: float, normed: bool) -> np.ndarray:
    if normed:
        mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
        x = (x / np.sqrt(mean + eps) * to_float(weight)).astype(np.float32)
    return rotate_half(x, cos_sin)


def _store(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    key, value, weight, cos_sin, key_state, value_state = args
    eps, normed, tile = params[0], bool(params[1]), int(params[2])
    position, width = int(regs[Register.POSITION]), key.shape[1]
    rotated = _norm_rotate(key[0], weight[0], cos_sin[position], eps, normed)
    start = position // tile * tile * width + position % tile
    key_state[start : start + width * tile : tile][:width] = from_float(rotated, key_state.dtype)
    value_state[position * width : (position + 1) * width] = from_float(value[0], value_state.dtype)


def _query(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    q, weight, cos_sin, out = args
    q = q.reshape(out.shape)
    out[:] = _norm_rotate(q, weight, cos_sin[int(regs[Register.POSITION])], params[0], bool(params[1]))


def _attend(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, key_state, value_state, _scores, out = args
    scale, tile = params[0], int(params[1])
    tokens, width = int(regs[Register.POSITION]) + 1, query.shape[1]
    tiles = -(-tokens // tile)
    keys = to_float(key_state[: tiles * tile * width]).reshape(tiles, width, tile)
    keys = keys.transpose(0, 2, 1).reshape(tiles * tile, width)[:tokens]
    values = to_float(value_state[: tokens * width]).reshape(tokens, width)
    heads = out.reshape(query.shape)
    for head in range(len(query)):
        heads[head] = attend(query[head], keys, values, scale)


GQA = (
    Operator(
        "gqa_store",
        ("key", "value", "weight", "cos_sin", ">key_state", ">value_state"),
        ("eps", "normed", "tile"),
        "",
        _store,
    ),
    Operator("gqa_query", ("q", "weight", "cos_sin", ">out"), ("eps", "normed"), "heads", _query),
    Operator(
        "gqa_attend", ("query", "key_state", "value_state", ">scores", ">out"), ("scale", "tile"), "heads", _attend
    ),
)
"""normed: 1 when queries and keys are RMS-normalised per head before rotation (Qwen3), 0 when not (Llama)."""
