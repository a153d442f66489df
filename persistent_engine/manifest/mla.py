"""Multi-head latent attention, with the key and value up-projections absorbed into query and output.

Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1; vLLM's `forward_mqa` (model_executor/layers/attention).
Cache rows are `rank` normalised latents, then `rope` rotated values (pairs).
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.attention import attend
from persistent_engine.manifest.operator import Operator, from_float, rotate_pairs, to_float
from persistent_engine.plan import Register

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
    Operator("mla_store", ("latent", "weight", "cos_sin", ">state"), ("eps", "rank", "rope"), "", _store),
    Operator("mla_query", ("q", "kv_b", "cos_sin", ">out"), ("nope", "rope", "rank", "value"), "heads", _query),
    Operator("mla_attend", ("query", "state", ">scores", ">out"), ("scale", "rank", "rope"), "heads", _attend),
    Operator("mla_value", ("context", "kv_b", ">out"), ("nope", "value", "rank"), "heads", _value),
)
"""`scores` is scratch: its content after a step is not defined."""
