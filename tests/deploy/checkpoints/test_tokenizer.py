"""The tokenizer round-trips everything, and transformers renders its chat template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.checkpoints import ensure
from deploy.checkpoints.tokenizer import train

TOKENIZER, VOCABULARY = train()


@given(st.text())
def test_every_text_round_trips(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    if not any(mark in text for mark in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")):
        assert TOKENIZER.decode(ids) == text


def test_markers_are_one_token_each() -> None:
    assert TOKENIZER.encode("<|im_start|>user\n").ids[0] == 1
    assert TOKENIZER.encode("<|im_end|>").ids == [VOCABULARY.end] == [2]
    assert VOCABULARY.size == 1000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that transformers loads
def test_transformers_renders_the_chat_template() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ensure("tiny-gqa"))
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token_id == VOCABULARY.end
