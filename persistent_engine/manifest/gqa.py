"""Grouped-query attention. One state plane of transposed key tiles and one of value rows per key-value head.

Source: vllm/v1/attention/backends/cpu_attn.py (layout), Qwen3 and Llama model definitions (order of norm and rotation).
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.attention import attend
from persistent_engine.manifest.formats import from_float, rotate_half, to_float
from persistent_engine.manifest.operator import define
from persistent_engine.plan import Register, Role

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
    define(
        "gqa_store",
        (
            "key f32 [1,d]",
            "value f32 [1,d]",
            "weight vector [1,d]",
            "cos_sin vector [t,d] @ d*M",
            ">key_state state [t,d] @ d*M",
            ">value_state state [t,d] @ d*M",
        ),
        ("eps", "normed", "tile"),
        "",
        _store,
        whole=("d/2", "tile", "t/tile"),
        flops="7*d*M",
        cpu="gqa.store",
    ),
    define(
        "gqa_query",
        ("q f32 [1,rows*d]", "weight vector [1,d]", "cos_sin vector [t,d] @ d*M", ">out f32 [rows,d]"),
        ("eps", "normed"),
        "heads",
        _query,
        whole=("d/2",),
        flops="7*d*rows*M",
        cpu="gqa.query",
    ),
    define(
        "gqa_attend",
        (
            "query f32 [h,d]",
            "key_state state [t,d] @ min(T,t)*d*B",
            "value_state state [t,d] @ min(T,t)*d*B",
            ">scores f32 [h,t] @ h*min(T,t)*M",
            ">out f32 [1,h*d]",
        ),
        ("scale", "tile"),
        "heads",
        _attend,
        whole=("d", "tile", "t/tile"),
        flops="(4*d+3)*min(T,t)*h*M",
        device_role=Role.MLA,
        cpu="gqa.attend",
    ),
)
"""normed: 1 when queries and keys are RMS-normalised per head before rotation (Qwen3), 0 when not (Llama)."""
