"""Writes one checkpoint directory: configuration, tokenizer and one safetensors file.

Invariant: files appear in the directory only as a whole; a reader never meets half a checkpoint.
"""

import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from deploy.checkpoints import gqa, mla
from deploy.checkpoints.tokenizer import Vocabulary, tokenizer_files, train
from deploy.checkpoints.weights import write_weights
from speedtier.errors import ConfigError

__all__ = ["DTYPES", "NAMES", "CheckpointError", "build"]

_MODELS: dict[str, ModuleType] = {"tiny-mla": mla, "tiny-gqa": gqa}
NAMES = tuple(_MODELS)
DTYPES = ("float32", "bfloat16")


class CheckpointError(ConfigError):
    """No checkpoint of that name or dtype can be built."""


def build(name: str, directory: Path, dtype: str = "float32") -> Path:
    """Write checkpoint `name` (one of `NAMES`) to `directory`, replacing what is there, and return it.

    Raises `CheckpointError` when the name or dtype is unknown.
    """
    check(name, dtype)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir(mode=0o755)
        _write(_MODELS[name], fresh, dtype)
        if directory.exists():
            directory.rename(Path(scratch) / "old")
        fresh.rename(directory)
    return directory


def check(name: str, dtype: str) -> None:
    """Raise `CheckpointError` unless `build` knows both."""
    if name not in _MODELS:
        raise CheckpointError(f"checkpoint name {name!r} is unknown; take one of {', '.join(NAMES)}")
    if dtype not in DTYPES:
        raise CheckpointError(f"checkpoint dtype {dtype!r} is unknown; take one of {', '.join(DTYPES)}")


def _write(model: ModuleType, directory: Path, dtype: str) -> None:
    tokenizer, vocabulary = train()
    settings: dict[str, Any] = model.config(vocabulary)
    length = settings["max_position_embeddings"]
    tokens = {"eos_token_id": vocabulary.end, "pad_token_id": vocabulary.pad, "bos_token_id": None}
    _json(directory / "config.json", settings | tokens | {"dtype": dtype, "use_cache": True})
    _json(directory / "generation_config.json", _generation(vocabulary))
    tokenizer_files(directory, tokenizer, length)
    write_weights(directory / "model.safetensors", model.tensors(vocabulary), dtype)


def _generation(vocabulary: Vocabulary) -> dict[str, Any]:
    """No temperature, top-k or top-p: vLLM would take them as the server's defaults."""
    return {"eos_token_id": vocabulary.end, "pad_token_id": vocabulary.pad}


def _json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
