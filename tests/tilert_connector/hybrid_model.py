"""A checkpoint whose layers keep different caches: sliding windows and full attention in turn."""

import json
import shutil
from pathlib import Path

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from deploy.checkpoints import ensure


def build_hybrid(directory: Path) -> Path:
    """A random Gemma 3 of four layers with the tokenizer of `tiny-gqa`; the same weights each time."""
    plain = ensure("tiny-gqa")
    vocabulary = json.loads((plain / "config.json").read_text())["vocab_size"]
    kinds = ["sliding_attention", "full_attention"] * 2
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=len(kinds),
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        query_pre_attn_scalar=64,
        sliding_window=128,
        layer_types=kinds,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        # Large enough that greedy text is not one token for ever.
        initializer_range=0.3,
    )
    Gemma3ForCausalLM(config).to(torch.float32).save_pretrained(directory)
    for file in plain.glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory
