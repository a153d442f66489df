"""Multi-head latent attention, with the key and value up-projections absorbed into query and output.

Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1; vLLM's `forward_mqa` (model_executor/layers/attention).
Cache rows are `rank` normalised latents, then `rope` rotated values (pairs).
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.attention import attend
from persistent_engine.manifest.formats import from_float, rotate_pairs, to_float
from persistent_engine.manifest.operator import define
from persistent_engine.plan import Register, Role

__all__ = ["MLA"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _store(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    latent, weight, cos_sin, state = args
    eps, rank, rope = params[0], int(params[1]), int(params[2])
    position = int(regs[Register.POSITION])
    values = latent[0, :rank]
    normed = values / np.sqrt(np.mean(np.square(values, dtype=np.float64)) + eps) * to_float(weight)[0]
    row = np.concatenate([normed, rotate_pairs(latent[0, rank : rank + rope], cos_sin[position])])
    state[position * (rank + rope) : (position + 1) * (rank + rope)] = from_float(row, state.dtype)


def _query(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    q, kv_b, cos_sin, out = args
    nope, rope, rank, value = (int(p) for p in params)
    up = to_float(kv_b).reshape(-1, nope + value, rank)
    q = q.reshape(-1, nope + rope)
    rotated = rotate_pairs(q[:, nope : nope + rope], cos_sin[int(regs[Register.POSITION])])
    for head in range(len(q)):
        out[head, :rank] = q[head, :nope] @ up[head, :nope]
        out[head, rank:] = rotated[head]


def _attend(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    query, state, _scores, out = args
    scale, rank, rope = params[0], int(params[1]), int(params[2])
    tokens = int(regs[Register.POSITION]) + 1
    cache = to_float(state[: tokens * (rank + rope)]).reshape(tokens, rank + rope)
    for head in range(len(query)):
        out[head] = attend(query[head], cache, cache[:, :rank], scale)


def _value(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    context, kv_b, out = args
    nope, value, rank = (int(p) for p in params)
    up = to_float(kv_b).reshape(-1, nope + value, rank)
    heads = out.reshape(-1, value)
    for head in range(len(context)):
        heads[head] = up[head, nope:] @ context[head]


MLA = (
    define(
        "mla_store",
        (
            "latent f32 [1,rank+rope]",
            "weight vector [1,rank]",
            "cos_sin vector [t,rope] @ rope*M",
            ">state state [t,rank+rope] @ (rank+rope)*M",
        ),
        ("eps", "rank", "rope"),
        "",
        _store,
        whole=("rank", "rope/2"),
        flops="(4*rank+3*rope)*M",
        cpu="mla.store",
    ),
    define(
        "mla_query",
        (
            "q f32 [1,rows*(nope+rope)]",
            "kv_b matrix [rows*(nope+value),rank] @ rows*nope*rank",
            "cos_sin vector [t,rope] @ rope*M",
            ">out f32 [rows,rank+rope]",
        ),
        ("nope", "rope", "rank", "value"),
        "heads",
        _query,
        whole=("nope", "rope/2", "rank", "value"),
        flops="(2*nope*rank+3*rope)*rows*M",
        device_role=Role.MLA,
        cpu="mla.query",
    ),
    define(
        "mla_attend",
        (
            "query f32 [rows,rank+rope]",
            "state state [t,rank+rope] @ min(T,t)*(rank+rope)*B",
            ">scores f32 [rows,t] @ rows*min(T,t)*M",
            ">out f32 [rows,rank]",
        ),
        ("scale", "rank", "rope"),
        "heads",
        _attend,
        whole=("rank", "rope"),
        flops="(2*(rank+rope)+2*rank+3)*min(T,t)*rows*M",
        device_role=Role.MLA,
        cpu="mla.attend",
    ),
    define(
        "mla_value",
        (
            "context f32 [rows,rank]",
            "kv_b matrix [rows*(nope+value),rank] @ rows*value*rank",
            ">out f32 [1,rows*value]",
        ),
        ("nope", "value", "rank"),
        "heads",
        _value,
        whole=("nope", "value", "rank"),
        flops="2*value*rank*rows*M",
        device_role=Role.MLA,
        cpu="mla.value",
    ),
)
"""`scores` is scratch: its content after a step is not defined."""
