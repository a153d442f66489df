"""Which model the servers of the comparison hold."""

import json
from pathlib import Path

import msgspec

from deploy.checkpoints import ensure
from persistent_engine.models import read_facts

__all__ = ["Shape", "shape_of"]

# Numeric facts of the config.json of Qwen/Qwen3-0.6B on Hugging Face.
VOCABULARY = 151936
QWEN3_0_6B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}


class Shape(msgspec.Struct, frozen=True):
    """A model directory, and what vLLM needs besides it."""

    name: str
    directory: Path
    vocabulary: int
    dtype: str
    arguments: tuple[str, ...] = ()


def shape_of(model: str, scratch: Path) -> Shape:
    """One of ours, or the named random one, whose weights vLLM makes up itself. Raises: CheckpointError."""
    if model == "qwen3-0.6b-random":
        directory = scratch / model
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(QWEN3_0_6B))
        arguments = ("--load-format", "dummy", "--skip-tokenizer-init", "--max-model-len", "4096")
        return Shape(model, directory, VOCABULARY, "bfloat16", arguments)
    directory = ensure(model)
    return Shape(model, directory, read_facts(directory).vocabulary, "float32")
