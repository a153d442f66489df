"""A byte-level BPE tokenizer trained on the spot, with a ChatML template.

Invariant: every string round-trips (all 256 bytes have a token); the same text gives the same merges.
"""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from deploy.checkpoints.place import checkout

__all__ = ["CHAT_TEMPLATE", "Vocabulary", "tokenizer_files", "train"]

PAD, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SIZE = 1000

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """What the weights and the configuration need to know of the tokenizer; all values are token ids."""

    size: int
    end: int
    pad: int
    markers: tuple[int, ...]
    stray: tuple[int, ...]


def _text() -> str:
    """The licence: the one text of some length in the distribution that will not change."""
    root = checkout()
    if root is not None:
        return (root / "LICENSE").read_text()
    return distribution("speedtier").read_text("licenses/LICENSE") or ""


def train() -> tuple[Tokenizer, Vocabulary]:
    """Train `SIZE` tokens. Ids: `<|endoftext|>` 0, `<|im_start|>` 1, `<|im_end|>` 2, bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (PAD, TURN, END)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text().splitlines(keepends=True), trainer)
    ids = tokenizer.get_vocab()
    stray = [ids[sign] for sign in pre_tokenizers.ByteLevel.alphabet() if not sign.isascii() and sign not in "ĠĊ"]
    vocabulary = Vocabulary(
        size=len(ids), end=ids[END], pad=ids[PAD], markers=(ids[PAD], ids[TURN]), stray=tuple(sorted(stray))
    )
    return tokenizer, vocabulary


def tokenizer_files(directory: Path, tokenizer: Tokenizer, length: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` as transformers and vLLM read them."""
    tokenizer.save(str(directory / "tokenizer.json"), pretty=True)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [TURN],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
