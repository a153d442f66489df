"""Sampling: the kernel draws from the distribution that vLLM defines, and a seed repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent_engine.manifest import distribution, uniform
from persistent_engine.runtime.cpu.kernels.sampling import sample

DRAWS = 20_000


def _draw(
    logits: np.ndarray, position: int, seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> int:
    weights, heap = np.empty(len(logits), np.float32), np.empty(len(logits), np.float32)
    return int(sample(logits, weights, heap, len(logits), position, seed, temperature, top_k, top_p, min_p))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 0, 1.0, 0.0),
        (1.3, 5, 1.0, 0.0),
        (1.0, 0, 0.8, 0.0),
        (0.9, 8, 0.6, 0.0),
        (1, 0, 1, 0.2),
    ],
)
def test_draws_follow_the_distribution(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    logits = np.random.default_rng(3).normal(size=24).astype(np.float32) * 2
    exact = distribution(logits, temperature, top_k, top_p, min_p)
    counts = np.zeros(24)
    for position in range(DRAWS):
        counts[_draw(logits, position, 11, temperature, top_k, top_p, min_p)] += 1
    assert counts[exact == 0].sum() == 0
    kept = exact > 0
    chi_square = ((counts[kept] - DRAWS * exact[kept]) ** 2 / (DRAWS * exact[kept])).sum()
    freedom = int(kept.sum()) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_distribution_is_vllms_definition() -> None:
    torch = pytest.importorskip("torch")
    logits = np.random.default_rng(5).normal(size=50).astype(np.float32) * 3
    for temperature, top_k, top_p in [(0.8, 7, 1.0), (1.0, 0, 0.7), (1.5, 20, 0.9)]:
        scaled = torch.tensor(logits, dtype=torch.float64) / temperature
        if top_k:  # vllm/v1/sample/ops/topk_topp_sampler.py, apply_top_k_top_p_pytorch
            scaled[scaled < scaled.topk(top_k).values[-1]] = -float("inf")
        ascending, order = scaled.sort(descending=False)
        mask = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
        mask[-1] = False
        ascending[mask] = -float("inf")
        exact = torch.empty_like(scaled).scatter_(0, order, ascending).softmax(-1).numpy()
        np.testing.assert_allclose(distribution(logits, temperature, top_k, top_p, 0.0), exact, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**62), st.floats(0.05, 5), st.integers(0, 45), st.floats(0.01, 1), st.data())
def test_kernel_agrees_with_reference(size: int, seed: int, temperature: float, top_k: int, top_p: float, data) -> None:  # type: ignore[no-untyped-def]
    values = data.draw(st.lists(st.integers(-8, 8), min_size=size, max_size=size))  # ties on purpose
    logits = np.array(values, np.float32) / 2
    got = _draw(logits, 3, seed, temperature, top_k, top_p, 0.0)
    exact = distribution(logits, temperature, top_k, top_p, 0.0)
    mass, draw = np.cumsum(exact), uniform(seed, 3)
    if np.abs(mass - draw).min() > 1e-5 and np.abs(mass - top_p).min() > 1e-5:
        assert exact[got] > 0
        assert got == int(np.searchsorted(mass, draw, side="right"))


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert _draw(np.array([1, 3, 3, 2], np.float32), 0, 1, 0.0, 0, 1.0, 0.0) == 1
