"""A digest that tells one set of weights from another.

Invariant: it does not depend on how the tensors are spread over files, only on their names, types, shapes and bytes:
all bytes up to FULL_BYTES a tensor, evenly spread samples of larger ones.
"""

import json
import struct
from pathlib import Path
from typing import Any

import xxhash

from tilert_connector.errors import LayoutError

__all__ = ["weights_digest"]

FULL_BYTES = 32 << 20
SAMPLES = 256
SAMPLE_BYTES = 4096
MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself keeps."""


def weights_digest(model_dir: Path | str) -> str:
    """xxh3-128, in hexadecimal, over each tensor's name, dtype, shape and (sampled) bytes.

    Format: https://github.com/huggingface/safetensors (8-byte little-endian header length, JSON, data).
    Raises LayoutError if the directory has no readable safetensors files.
    """
    files = sorted(Path(model_dir).glob("*.safetensors"))
    if not files:
        raise LayoutError(
            f"weights_digest: no *.safetensors in {str(model_dir)!r}; give `weights` a name of your own "
            "that is the same on prefill and decode nodes"
        )
    samples: dict[str, str] = {}
    for path in files:
        samples.update(_samples(path))
    digest = xxhash.xxh3_128()
    for name in sorted(samples):
        digest.update(f"{name}\0{samples[name]}\0".encode())
    return digest.hexdigest()


def _samples(path: Path) -> dict[str, str]:
    """Tensor name -> its dtype, shape and digest."""
    found: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"header of {length} bytes")
            header: dict[str, Any] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                start, stop = entry["data_offsets"]
                digest = xxhash.xxh3_128(f"{entry['dtype']}{list(entry['shape'])}".encode())
                for first, count in _windows(stop - start):
                    file.seek(8 + length + start + first)
                    digest.update(file.read(count))
                found[name] = digest.hexdigest()
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise LayoutError(f"weights_digest: {str(path)!r} is not a safetensors file: {error}") from error
    return found


def _windows(size: int) -> list[tuple[int, int]]:
    """(offset, length) of what is read of a tensor of `size` bytes."""
    if size <= FULL_BYTES:
        return [(0, size)]
    return [((size - SAMPLE_BYTES) * index // (SAMPLES - 1), SAMPLE_BYTES) for index in range(SAMPLES)]
