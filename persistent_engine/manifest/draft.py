"""Drafting and verifying: the draft layer's input, greedy choices, and which drafted tokens are kept.

Source: DeepSeek-V3 (arXiv 2412.19437) section 2.2, multi-token prediction; greedy acceptance keeps a drafted token when
it is what the model itself would have chosen, so speculation changes no token.
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.formats import to_float
from persistent_engine.manifest.operator import SELECTION, define
from persistent_engine.plan import Register

__all__ = ["DRAFT"]

Args = Sequence[np.ndarray]
Params = Sequence[float]
Rows = tuple[int, int]
Regs = dict[int, float]


def _norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    mean = np.mean(np.square(x, dtype=np.float64))
    return np.asarray(x / np.sqrt(mean + eps) * to_float(weight), dtype=np.float32)


def _input(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    embedding, hidden, embedding_weight, hidden_weight, out = args
    width = embedding.shape[1]
    out[0, :width] = _norm(embedding[0], embedding_weight[0], params[0])
    out[0, width:] = _norm(hidden[0], hidden_weight[0], params[0])


def _embed_drafted(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    table, token, out = args
    out[0] = to_float(table[int(token[0, 0])])


def _choose(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    logits, choice = args
    choice[0, 0] = int(np.argmax(logits[0]))


def _verify(args: Args, params: Params, rows: Rows, regs: Regs) -> None:
    logits, drafted, accepted = args
    accepted[0] = -1
    for place in range(min(len(logits), accepted.shape[1])):
        choice = int(np.argmax(logits[place]))
        accepted[0, place] = choice
        regs[Register.NEXT] = choice
        if place < drafted.shape[1] and drafted[0, place] != choice:
            break


DRAFT = (
    define(
        "draft_input",
        (
            "embedding f32 [1,k]",
            "hidden f32 [1,k]",
            "embedding_weight vector [1,k]",
            "hidden_weight vector [1,k]",
            ">out f32 [1,2*k]",
        ),
        ("eps",),
        "",
        _input,
        flops="8*k*M",
    ),
    define(
        "embed_drafted",
        ("table matrix [v,k] @ k*M", "token i32 [1,1]", ">out f32 [1,k]"),
        (),
        "",
        _embed_drafted,
        flops="0",
    ),
    define(
        "choose",
        ("logits f32 [1,v]", ">choice i32 [1,1]"),
        (),
        "",
        _choose,
        flops="v*M",
        warp_roles=SELECTION,
    ),
    define(
        "verify",
        ("logits f32 [m,v] @ v*M", "drafted i32 [1,n]", ">accepted i32 [1,n+1] @ n+1"),
        (),
        "",
        _verify,
        flops="v*M",
        warp_roles=SELECTION,
    ),
)
"""choose: the lowest of the most likely tokens. verify: one row of logits for each verified token, the undrafted one
first. Writes the tokens that the step produces, then -1: the choices up to and with the first that was not drafted, or
one more than were drafted if all were kept. NEXT is the last of them. A place without logits is not accepted."""
