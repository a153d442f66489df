"""Fixtures of the router's tests."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.router.stack import Open, opener


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with no weights: byte-level BPE, ids 0 to 2 special, 2 the end of a turn, 0 another end."""
    where = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "the quick brown fox jumps over the lazy dog, then rests; naïve café 日本語 🎉 "
    tokenizer.train_from_iterator([text * 20], trainer)
    tokenizer.save(str(where / "tokenizer.json"))
    (where / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (where / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return where


@pytest.fixture
async def open_stack(model_dir: Path) -> AsyncIterator[Open]:
    """Opens routers between fakes; see ``tests.router.stack.opener``."""
    async with opener(model_dir) as open_:
        yield open_
