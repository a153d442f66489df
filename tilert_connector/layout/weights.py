"""A digest that tells one set of weights from another without reading all of it.

Invariant: it does not depend on how the tensors are spread over files, only on their names, types,
shapes and first bytes.
"""

import json
import struct
from pathlib import Path
from typing import Any

import xxhash

from tilert_connector.errors import LayoutError

__all__ = ["weights_digest"]

SAMPLE_BYTES = 4096
MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself keeps."""


def weights_digest(model_dir: Path | str) -> str:
    """xxh3-128, in hexadecimal, over each tensor's name, dtype, shape and first 4096 bytes.

    Format: https://github.com/huggingface/safetensors (8-byte little-endian header length, JSON, data).
    Raises LayoutError if the directory has no readable safetensors files.
    """
    files = sorted(Path(model_dir).glob("*.safetensors"))
    if not files:
        raise LayoutError(
            f"weights_digest: no *.safetensors in {str(model_dir)!r}; give `weights` a name of your own "
            "that is the same on prefill and decode nodes"
        )
    samples: dict[str, tuple[str, bytes]] = {}
    for path in files:
        samples.update(_samples(path))
    digest = xxhash.xxh3_128()
    for name in sorted(samples):
        kind, data = samples[name]
        digest.update(f"{name}\0{kind}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _samples(path: Path) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"header of {length} bytes")
            header: dict[str, Any] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                start, stop = entry["data_offsets"]
                file.seek(8 + length + start)
                kind = f"{entry['dtype']}{list(entry['shape'])}"
                found[name] = kind, file.read(min(SAMPLE_BYTES, stop - start))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise LayoutError(f"weights_digest: {str(path)!r} is not a safetensors file: {error}") from error
    return found
