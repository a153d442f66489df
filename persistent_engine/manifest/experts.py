"""Routed experts: choice of experts, and their gated feed-forward on the chosen ones only.

Source: DeepSeek-V3 (arXiv 2412.19437) section 2.1.2; vllm/model_executor/layers/fused_moe (`grouped_topk`).
Ties are won by the lower expert number.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.formats import to_float
from persistent_engine.manifest.operator import SELECTION, define

__all__ = ["EXPERTS"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-values, kind="stable")[:count]


def _select(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    logits, bias, ids, weights = args
    groups, kept_groups, scaling, renormalise = int(params[0]), int(params[1]), params[2], bool(params[3])
    scores = 1 / (1 + np.exp(-logits[0]))
    choice = scores + to_float(bias)[0]
    grouped = choice.reshape(groups, -1)
    group_scores = np.sort(grouped, axis=1)[:, -2:].sum(axis=1)
    allowed = np.full_like(grouped, -np.inf)
    for group in _largest(group_scores, kept_groups):
        allowed[group] = grouped[group]
    chosen = _largest(allowed.reshape(-1), ids.shape[1])
    picked = scores[chosen]
    if renormalise:
        picked = picked / (picked.sum() + 1e-20)
    ids[0], weights[0] = chosen, picked * scaling


def _gated(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    gate_weight, up_weight, x, ids, out = args
    width = int(params[0])
    for unit in range(*rows):
        slot, row = divmod(unit, width)
        row += int(ids[0, slot]) * width
        gate = to_float(gate_weight[row]) @ x[0]
        out[0, unit - rows[0]] = gate / (1 + np.exp(-gate)) * (to_float(up_weight[row]) @ x[0])


def _down_add(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    down_weight, hidden, ids, weights, residual, out = args
    width = int(params[0])
    total = residual[0].copy()
    hidden = hidden.reshape(ids.shape[1], -1)
    for slot in range(ids.shape[1]):
        first = int(ids[0, slot]) * width
        total += weights[0, slot] * (to_float(down_weight[first + rows[0] : first + rows[1]]) @ hidden[slot])
    out[0] = total


EXPERTS = (
    define(
        "expert_select",
        ("logits f32 [1,e]", "bias vector [1,e]", ">ids i32 [1,a]", ">weights f32 [1,a]"),
        ("groups", "kept_groups", "scaling", "renormalise"),
        "",
        _select,
        whole=("groups", "kept_groups", "groups-kept_groups+1", "e/groups-1", "kept_groups*e/groups-a+1"),
        flops="(6*e+3*a)*M",
        warp_roles=SELECTION,
        cpu="experts.select",
    ),
    define(
        "expert_gated",
        (
            "gate_weight matrix [e*width,k] @ distinct(a,e,M)*rows/a*k",
            "up_weight matrix [e*width,k] @ distinct(a,e,M)*rows/a*k",
            "x f32 [1,k]",
            "ids i32 [1,a]",
            ">out f32 [1,rows]",
        ),
        ("width",),
        "chosen experts x their hidden rows",
        _gated,
        whole=("width", "e-a+1"),
        flops="(4*k+5)*rows*M",
        extent="a*width",
        cpu="experts.select_gated",
    ),
    define(
        "expert_down_add",
        (
            "down_weight matrix [e*width,k] @ distinct(a,e,M)*rows*k",
            "hidden f32 [1,a*k]",
            "ids i32 [1,a]",
            "weights f32 [1,a]",
            "residual f32 [1,rows]",
            ">out f32 [1,rows]",
        ),
        ("width",),
        "output rows",
        _down_add,
        whole=("width", "e-a+1"),
        flops="(2*k+2)*a*rows*M",
        extent="width",
        cpu="experts.down_add",
    ),
)
"""Expert weights are stacked by rows: expert e owns rows [e x width, (e+1) x width)."""
