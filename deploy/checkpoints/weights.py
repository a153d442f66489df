"""Writes weights in the safetensors format.

The library's own writer takes raw pointers for bfloat16 and has changed its interface. The format itself is
eight bytes of header length, a JSON header and the data (safetensors' README, section "Format").

Invariant: the bytes of the file follow from the tensors alone, not from a library's version.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deploy.checkpoints.draw import Tensors

__all__ = ["write_weights"]

_ALIGN = 64  # bytes; a mapped float32 row then starts on a cache line
_CODES = {"float32": "F32", "uint16": "BF16"}


def write_weights(path: Path, tensors: Tensors, dtype: str) -> None:
    """Write `tensors` in name order, as float32 or rounded to bfloat16 (all but the experts' score bias)."""
    stored = {name: _stored(name, values, dtype) for name, values in sorted(tensors.items())}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, raw in stored.items():
        span = [offset, offset + raw.nbytes]
        header[name] = {"dtype": _CODES[raw.dtype.name], "shape": list(raw.shape), "data_offsets": span}
        offset = span[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGN)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for raw in stored.values():
            file.write(raw.data)


def _stored(name: str, values: NDArray[np.float32], dtype: str) -> NDArray[np.float32] | NDArray[np.uint16]:
    # Expert scores are compared with their bias in float32, and DeepSeek-V3 stores it so.
    if dtype == "float32" or name.endswith("e_score_correction_bias"):
        return np.ascontiguousarray(values, dtype="<f4")
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")  # ties to even
    return rounded
