"""Number formats and rotations that references share."""

import numpy as np

__all__ = ["from_float", "rotate_half", "rotate_pairs", "to_float"]


def to_float(values: np.ndarray) -> np.ndarray:
    """float32 values of a float32 or bfloat16 (uint16) array."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def from_float(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` as float32, or as bfloat16 (uint16) rounded to nearest even."""
    if dtype != np.uint16:
        return values.astype(np.float32)
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rotate_pairs(values: np.ndarray, cos_sin: np.ndarray) -> np.ndarray:
    """Rotary embedding of neighbouring pairs (vLLM's `is_neox_style=False`). values [..., 2n], cos_sin [2n]."""
    half = cos_sin.shape[-1] // 2
    cos, sin = cos_sin[:half], cos_sin[half:]
    even, odd = values[..., 0::2], values[..., 1::2]
    out = np.empty_like(values)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = odd * cos + even * sin
    return out


def rotate_half(values: np.ndarray, cos_sin: np.ndarray) -> np.ndarray:
    """Rotary embedding of halves (vLLM's `is_neox_style=True`). values [..., 2n], cos_sin [2n]."""
    half = cos_sin.shape[-1] // 2
    cos, sin = cos_sin[:half], cos_sin[half:]
    low, high = values[..., :half], values[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
