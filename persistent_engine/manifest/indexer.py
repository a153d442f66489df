"""Sparse indexer: which tokens of the state a query attends to.

Source: DeepSeek-V3.2 (DeepSeek Sparse Attention) and GLM-5; transformers' `DeepseekV32Indexer` and `GlmMoeDsaIndexer`,
which differ in how pairs are rotated (`interleaved`). The projections before it are plain matrix-vector products.
A plane of the slot holds one normalised, rotated key a token.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.formats import from_float, rotate_half, rotate_pairs, to_float
from persistent_engine.manifest.operator import SELECTION, define
from persistent_engine.plan import Register, Role

__all__ = ["INDEXER"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _rotate(values: np.ndarray, cos_sin: np.ndarray, rope: int, interleaved: float) -> np.ndarray:
    rotate = rotate_pairs if interleaved else rotate_half
    return np.concatenate([rotate(values[..., :rope], cos_sin), values[..., rope:]], axis=-1)


def _store(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    key, weight, bias, cos_sin, state = args
    position, width = int(regs[Register.POSITION]), key.shape[1]
    values = key[0].astype(np.float64)
    normed = (values - values.mean()) / np.sqrt(values.var() + params[0])
    scaled = (normed * to_float(weight)[0] + to_float(bias)[0]).astype(np.float32)
    rotated = _rotate(scaled, cos_sin[position], int(params[1]), params[2])
    state[position * width : (position + 1) * width] = from_float(rotated, state.dtype)


def _query(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    q, cos_sin, out = args
    out[:] = _rotate(q.reshape(out.shape), cos_sin[int(regs[Register.POSITION])], int(params[0]), params[1])


def _scores(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, weights, state, out = args
    width, tokens = query.shape[1], int(regs[Register.POSITION]) + 1
    out[0] = -np.inf
    for token in range(rows[0], min(rows[1], tokens)):  # one by one: a product of all would round as it is cut
        key = to_float(state[token * width : (token + 1) * width])
        out[0, token - rows[0]] = weights[0] @ np.maximum(query @ key * np.float32(params[0]), 0)


def _select(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    scores, ids = args
    tokens = min(int(regs[Register.POSITION]) + 1, scores.shape[1])
    count = min(tokens, ids.shape[1])
    chosen = np.argsort(-scores[0, :tokens], kind="stable")[:count]
    ids[0] = -1
    ids[0, :count] = np.sort(chosen)


INDEXER = (
    define(
        "index_store",
        (
            "key f32 [1,d]",
            "weight vector [1,d]",
            "bias vector [1,d]",
            "cos_sin vector [t,rope] @ rope*M",
            ">state state [t,d] @ d*M",
        ),
        ("eps", "rope", "interleaved"),
        "",
        _store,
        whole=("rope/2", "d-rope+1"),
        flops="(8*d+3*rope)*M",
        device_role=Role.INDEXER,
    ),
    define(
        "index_query",
        ("q f32 [1,rows*d]", "cos_sin vector [t,rope] @ rope*M", ">out f32 [rows,d]"),
        ("rope", "interleaved"),
        "heads",
        _query,
        whole=("rope/2", "d-rope+1"),
        flops="3*rope*rows*M",
        device_role=Role.INDEXER,
    ),
    define(
        "index_scores",
        (
            "query f32 [h,d]",
            "weights f32 [1,h]",
            "state state [t,d] @ min(rows,max(0,T-first))*d*B",
            ">out f32 [1,rows] @ min(rows,max(0,T-first))*M",
        ),
        ("scale",),
        "tokens",
        _scores,
        flops="(2*d+4)*h*min(rows,max(0,T-first))*M",
        extent="t",
        device_role=Role.INDEXER,
    ),
    define(
        "index_select",
        ("scores f32 [1,t] @ min(T,t)*M", ">ids i32 [1,s]"),
        (),
        "",
        _select,
        flops="2*min(T,t)*M",
        warp_roles=SELECTION,
        device_role=Role.INDEXER,
    ),
)
"""index_scores: of head h and token t, relu(q_h k_t x scale), summed with the heads' weights; -inf past the position.

index_select: the positions of the largest scores, ascending; of equal scores the lower position; -1 where there are
fewer tokens than that.
"""
