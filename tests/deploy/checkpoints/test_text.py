"""What the checkpoints say: greedy text that is worth comparing."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from deploy.checkpoints import NAMES, ensure
from deploy.checkpoints.place import checkout
from tests.deploy.checkpoints.oracle import greedy, load, loops, prompts

LENGTHS = (1, 2, 15, 16, 17, 64, 129, 300)
EACH = int(os.environ.get("SPEEDTIER_TEXT_PROMPTS", "64")) // len(LENGTHS)


def test_loops_are_recognised() -> None:
    assert loops([9, 8, 7, 1, 2, 1, 2, 1, 2])
    assert loops([5] * 64)
    assert not loops([1, 2, 1, 2])
    assert not loops(list(range(64)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that transformers loads
def test_greedy_text_does_not_loop_or_end_and_its_choices_are_clear(name: str) -> None:
    path = ensure(name)
    model = load(path)
    settings = json.loads((path / "config.json").read_text())
    root = checkout() or Path()
    corpus = Tokenizer.from_file(str(path / "tokenizer.json")).encode((root / "LICENSE").read_text()).ids
    said = []
    for length in LENGTHS:
        said += greedy(model, prompts(length, EACH, settings["vocab_size"], corpus), 64)
    looping = sum(loops(one.tokens) for one in said)
    ending = sum(settings["eos_token_id"] in one.tokens for one in said)
    gaps = np.concatenate([one.gaps for one in said])
    close = float((gaps < 1e-4).mean())
    print(f"{name}: {len(said)} prompts, {looping} loop, {ending} end, gaps below 1e-4: {close:.1e} of all")
    assert looping <= 0.05 * len(said)
    assert ending <= 0.05 * len(said)
    assert close < 1e-3
    assert np.median(gaps) > 0.5
