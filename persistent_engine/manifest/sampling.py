"""The sampling operator: the next token from the logits, by the request's registers.

Source: vllm/v1/sample/sampler.py: temperature, then min-p, then top-k, then top-p; greedy at temperature 0 takes the
lowest token id among equals. The random number is a pure function of (seed, position): SplitMix64 (Steele et al. 2014).
"""

from collections.abc import Sequence

import numpy as np

from persistent_engine.manifest.operator import SELECTION, define
from persistent_engine.plan import Register

__all__ = ["SAMPLING", "distribution", "uniform"]

MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same wherever it is computed."""
    state = ((seed & MASK) + (position + 1) * 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return float((state ^ (state >> 31)) >> 11) * 2.0**-53


def distribution(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probabilities [vocabulary], float64, from logits [vocabulary]. top_k 0: all; top_p 1 and min_p 0: off."""
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    keep = weights >= min_p * weights.max()
    if 0 < top_k < keep.sum():
        keep &= weights >= np.sort(weights[keep])[-top_k]
    weights = np.where(keep, weights, 0.0)
    weights /= weights.sum()
    if top_p < 1:
        order = np.argsort(-weights, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(weights[order])[:-1]])
        weights[order[before >= top_p]] = 0.0
        weights /= weights.sum()
    return weights


def _sample(args: Sequence[np.ndarray], params: Sequence[float], rows: tuple[int, int], regs: dict[int, float]) -> None:
    logits = args[0][0]
    temperature = regs[Register.TEMPERATURE]
    if temperature == 0:
        regs[Register.NEXT] = int(np.argmax(logits))
        return
    weights = distribution(logits, temperature, int(regs[Register.TOP_K]), regs[Register.TOP_P], regs[Register.MIN_P])
    draw = uniform(int(regs[Register.SEED]), int(regs[Register.POSITION]))
    chosen = int(np.searchsorted(np.cumsum(weights), draw, side="right"))
    regs[Register.NEXT] = min(chosen, int(np.flatnonzero(weights)[-1]))


SAMPLING = (
    define(
        "sample",
        ("logits f32 [1,v]", ">scratch f32 [2,v] @ 2*v"),
        (),
        "",
        _sample,
        flops="6*v*M",
        warp_roles=SELECTION,
        cpu="sampling.sample",
    ),
)
"""`scratch`: two rows, each as long as the vocabulary; its content after a step is not defined."""
