"""Random tensors that depend on nothing but their name.

Invariant: a tensor's values follow from its name, its shape and its gain alone, so that adding or reordering
tensors changes no other. `RandomState` is numpy's frozen generator: its streams do not change with versions.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tensors", "matrix", "norm", "vector"]

Tensors = Mapping[str, NDArray[np.float32]]


def _state(name: str) -> np.random.RandomState:
    return np.random.RandomState(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))


def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
    """`[rows, columns]` float32 normal; unit-variance input gives output of standard deviation `gain`."""
    values: NDArray[np.float64] = _state(name).standard_normal((rows, columns))
    scaled: NDArray[np.float32] = (values * (gain / np.sqrt(columns))).astype(np.float32)
    return scaled


def vector(name: str, size: int, spread: float, centre: float = 0.0) -> NDArray[np.float32]:
    """`[size]` float32 normal around `centre`."""
    values: NDArray[np.float64] = _state(name).standard_normal(size)
    return (centre + spread * values).astype(np.float32)


def norm(name: str, size: int, centre: float = 1.0) -> NDArray[np.float32]:
    """RMSNorm weight `[size]`: not all equal, so that a forgotten weight shows in the tokens."""
    return vector(name, size, 0.1 * centre, centre)
