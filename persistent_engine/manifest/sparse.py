"""Latent attention over chosen tokens, and over parts of the tokens that are put together afterwards.

Source: flash decoding (Dao et al. 2023) for the parts; DeepSeek-V3.2's sparse attention for the choice. Which tokens a
part has follows from `tokens` alone and parts are added in order, so results do not depend on who computes them.
A part of a head is `rank` sums weighted by exp(score - max), then max, then the sum of the weights; a part without
tokens has max -inf and sums 0.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.attention import attend
from persistent_engine.manifest.formats import to_float
from persistent_engine.manifest.operator import define
from persistent_engine.plan import Register, Role

__all__ = ["SPARSE"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _cache(state: np.ndarray, width: int, regs: Regs) -> np.ndarray:
    tokens = int(regs[Register.POSITION]) + 1
    return state[: tokens * width].reshape(tokens, width)


def _part(query: np.ndarray, cache: np.ndarray, scale: float, rank: int) -> np.ndarray:
    """[heads, rank + 2] of some rows of the cache."""
    out = np.zeros((len(query), rank + 2), np.float32)
    out[:, rank] = -np.inf
    if len(cache):
        scores = query @ cache.T * np.float32(scale)
        out[:, rank] = scores.max(axis=1)
        weights = np.exp(scores - out[:, rank : rank + 1])
        out[:, :rank] = weights @ cache[:, :rank]
        out[:, rank + 1] = weights.sum(axis=1)
    return out


def _attend_sparse(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, state, ids, out = args
    scale, rank = params[0], int(params[1])
    chosen = ids[0][ids[0] >= 0]
    cache = to_float(_cache(state, query.shape[1], regs)[chosen])
    for head in range(len(query)):
        out[head] = attend(query[head], cache, cache[:, :rank], scale)


def _attend_part(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, state, out = args
    scale, rank, tokens = params[0], int(params[1]), int(params[3])
    cache = _cache(state, query.shape[1], regs)
    for part in range(*rows):
        piece = to_float(cache[part * tokens : (part + 1) * tokens])
        out[part - rows[0]] = _part(query, piece, scale, rank).reshape(-1)


def _attend_sparse_part(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, state, ids, out = args
    scale, rank, tokens = params[0], int(params[1]), int(params[3])
    cache = _cache(state, query.shape[1], regs)
    for part in range(*rows):
        chosen = ids[0, part * tokens : (part + 1) * tokens]
        piece = to_float(cache[chosen[chosen >= 0]])
        out[part - rows[0]] = _part(query, piece, scale, rank).reshape(-1)


def _combine(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    parts, out = args
    rank = int(params[0])
    parts = parts.reshape(len(parts), -1, rank + 2)
    for head in range(len(out)):
        largest = parts[:, head, rank].max()
        total, weight = np.zeros(rank, np.float32), np.float32(0)
        for part in parts[:, head]:
            factor = np.exp(part[rank] - largest)
            total += factor * part[:rank]
            weight += factor * part[rank + 1]
        out[head] = total / weight


_FLOPS = "(2*(rank+rope)+2*rank+3)"

SPARSE = (
    define(
        "mla_attend_sparse",
        (
            "query f32 [rows,rank+rope]",
            "state state [t,rank+rope] @ min(T,s)*(rank+rope)*M",
            "ids i32 [1,s]",
            ">out f32 [rows,rank]",
        ),
        ("scale", "rank", "rope"),
        "heads",
        _attend_sparse,
        whole=("rank", "rope"),
        flops=f"{_FLOPS}*min(T,s)*rows*M",
        device_role=Role.MLA,
    ),
    define(
        "mla_attend_part",
        (
            "query f32 [h,rank+rope]",
            "state state [t,rank+rope] @ min(rows*tokens,max(0,min(T,t)-first*tokens))*(rank+rope)*B",
            ">parts f32 [rows,h*(rank+2)]",
        ),
        ("scale", "rank", "rope", "tokens"),
        "parts",
        _attend_part,
        whole=("rank", "rope", "tokens"),
        flops=f"{_FLOPS}*min(rows*tokens,max(0,min(T,t)-first*tokens))*h*M",
        device_role=Role.MLA,
    ),
    define(
        "mla_attend_sparse_part",
        (
            "query f32 [h,rank+rope]",
            "state state [t,rank+rope] @ min(rows*tokens,max(0,min(T,s)-first*tokens))*(rank+rope)*M",
            "ids i32 [1,s]",
            ">parts f32 [rows,h*(rank+2)]",
        ),
        ("scale", "rank", "rope", "tokens"),
        "parts",
        _attend_sparse_part,
        whole=("rank", "rope", "tokens"),
        flops=f"{_FLOPS}*min(rows*tokens,max(0,min(T,s)-first*tokens))*h*M",
        device_role=Role.MLA,
    ),
    define(
        "mla_combine",
        ("parts f32 [p,rows*(rank+2)]", ">out f32 [rows,rank]"),
        ("rank",),
        "heads",
        _combine,
        whole=("rank",),
        flops="(2*rank+4)*p*rows*M",
        device_role=Role.MLA,
    ),
)
"""tokens: of the state (mla_attend_part) or of the chosen ones (mla_attend_sparse_part), how many one part has."""
