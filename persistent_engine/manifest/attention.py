"""Softmax attention of one query over a cache, shared by the references of both families."""

import numpy as np

__all__ = ["attend"]


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """query [d], keys [n, d], values [n, v] -> [v], float32."""
    scores = (keys @ query).astype(np.float32) * np.float32(scale)
    weights = np.exp(scores - scores.max())
    return np.asarray((weights @ values) / weights.sum(), dtype=np.float32)
