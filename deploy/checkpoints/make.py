"""What `speedtier checkpoint` does."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from deploy.checkpoints.build import build
from deploy.checkpoints.cache import ensure

__all__ = ["CheckpointConfig", "make"]


def _note(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoint, and where to."""

    name: Annotated[Literal["tiny-mla", "tiny-gqa"], _note("DeepSeek-V3 (tiny-mla) or Qwen3 (tiny-gqa) architecture.")]
    dtype: Annotated[Literal["float32", "bfloat16"], _note("Type of the stored weights.")] = "float32"
    directory: Annotated[str, _note("Where to write it; empty keeps it under .cache/checkpoints.")] = ""


def make(config: CheckpointConfig) -> None:
    """Build it and print its directory."""
    if config.directory:
        print(build(config.name, Path(config.directory), config.dtype))
    else:
        print(ensure(config.name, config.dtype))
