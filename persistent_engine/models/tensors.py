"""Tensors of a checkpoint, memory-mapped from its safetensors files.

Source: the safetensors format (8 bytes header length, JSON header, data). The library's numpy reader has no bfloat16,
so the header is read here and values are views of the map: float32 as float32, bfloat16 as uint16.
"""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from speedtier.errors import PlanError

__all__ = ["Tensors"]

DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}


class Tensors:
    """All tensors of the *.safetensors files in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        """Raises: PlanError when there is no such file or one is damaged."""
        self._views: dict[str, tuple[np.ndarray | None, str]] = {}
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise PlanError(f"no *.safetensors in {directory}; give the directory of a Hugging Face checkpoint")
        for path in files:
            try:
                self._map(path)
            except (OSError, ValueError, KeyError) as error:
                raise PlanError(f"cannot read weights in {path}: {error}") from error

    def _map(self, path: Path) -> None:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if name == "__metadata__":
                continue
            dtype, (first, last) = DTYPES.get(entry["dtype"]), entry["data_offsets"]
            view = None
            if dtype is not None:
                view = np.frombuffer(data, dtype, (last - first) // dtype.itemsize, start + first)
                view = view.reshape(entry["shape"])
            self._views[name] = (view, entry["dtype"])

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor, read-only. Raises: PlanError when it is missing or of a dtype the engine lacks."""
        if name not in self._views:
            raise PlanError(f"the checkpoint has no tensor {name!r}, which the model's graph needs")
        view, dtype = self._views[name]
        if view is None:
            raise PlanError(f"tensor {name!r} is {dtype}; the engine runs {' or '.join(DTYPES)} only")
        return view
