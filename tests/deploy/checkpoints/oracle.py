"""Greedy text from transformers, the independent reading of a checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Greedy(NamedTuple):
    """Tokens that the model adds, and at each step how far the best logit is above the second."""

    tokens: list[int]
    gaps: list[float]


def load(path: Path) -> Any:
    """The model in float32, evaluation mode. One thread: spinning ones starve whatever else the machine does."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()  # the draft layer is not transformers' to load, and it says so at length
    logging.disable_progress_bar()

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def greedy(model: Any, prompts: list[list[int]], count: int) -> list[Greedy]:
    """`count` tokens after each of `prompts`, which are of one length, whatever the tokens are."""
    import torch

    tokens, gaps = [], []
    fed, past = torch.tensor(prompts), None
    with torch.inference_mode():
        for _ in range(count):
            out = model(fed, past_key_values=past, use_cache=True)
            past = out.past_key_values
            best = out.logits[:, -1].topk(2)
            gaps.append((best.values[:, 0] - best.values[:, 1]).tolist())
            fed = best.indices[:, :1]
            tokens.append(fed[:, 0].tolist())
    return [
        Greedy(list(one), list(gap))
        for one, gap in zip(zip(*tokens, strict=True), zip(*gaps, strict=True), strict=True)
    ]


def prompts(length: int, count: int, vocabulary: int, corpus: list[int]) -> list[list[int]]:
    """`count` prompts of `length` tokens: random ids and pieces of `corpus` by turns."""
    state = np.random.RandomState(length)
    starts = state.randint(0, len(corpus) - length, count)
    noise = state.randint(3, vocabulary, (count, length)).tolist()
    return [noise[turn] if turn % 2 else corpus[start : start + length] for turn, start in enumerate(starts)]


def loops(tokens: list[int]) -> bool:
    """Whether the text ends in three rounds of a period of at most 21 tokens (a third of 64)."""
    return any(
        all(tokens[-1 - at] == tokens[-1 - at - period] for at in range(2 * period))
        for period in range(1, min(21, len(tokens) // 3) + 1)
    )
