"""What vLLM's CPU kernels really do, found by giving them a known pattern at start-up.

Invariants: the layout that the planes describe (per block and head: keys `[dim][token]`, then values
`[token][dim]`) is used only where the probe has seen it, since the kernels choose it by dtype, block size and
CPU; and no state is handed on whose keys were rotated by the wrong positions.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilert_connector.errors import LayoutError

__all__ = ["check_gqa_block", "check_mla_rotation"]

Values = NDArray[np.float32]
DIGIT = 256
"""Integers up to this are exact in bfloat16."""


def check_gqa_block(write: Callable[[Values, Values], Values], block_size: int, head_dim: int, about: str) -> None:
    """Write one block through `write` and check where each value went. Raises LayoutError.

    write: (keys, values), float32[block_size][head_dim] each, to what the block holds for one head,
    float32[2 * block_size * head_dim]. about: the kernel, for the message.
    """
    tokens = _read_back(write, np.arange(block_size)[:, None].repeat(head_dim, 1))
    dims = _read_back(write, np.arange(head_dim)[None, :].repeat(block_size, 0))
    half = block_size * head_dim
    index = np.arange(half)
    expected = {
        "keys": (tokens[:half], index % block_size, dims[:half], index // block_size),
        "values": (-1 - tokens[half:], index // head_dim, -1 - dims[half:], index % head_dim),
    }
    for what, (token, expected_token, dim, expected_dim) in expected.items():
        wrong = np.flatnonzero((token != expected_token) | (dim != expected_dim))
        if wrong.size:
            at = int(wrong[0])
            raise LayoutError(
                f"cache layout of {about}: the {what} have (token {token[at]}, dim {dim[at]}) at value {at} "
                f"of a block, expected (token {expected_token[at]}, dim {expected_dim[at]}); this kernel is "
                "not supported, try another --block-size or --dtype"
            )


def check_mla_rotation(rotate: Callable[[Values], Values]) -> None:
    """Rotate keys laid out as MLA's, and check the angle of each token. Raises LayoutError.

    rotate: float32[tokens][2] keys, one pair each, all of frequency 1, at positions 0, 1, 2, ... Pairs stand
    side by side (DeepSeek's style).
    """
    keys = np.tile(np.array([[1.0, 0.0]], np.float32), (8, 1))
    angles = np.arange(8, dtype=np.float32)
    expected = np.stack([np.cos(angles), np.sin(angles)], 1)
    if not np.allclose(rotate(keys), expected, atol=1e-5):
        raise LayoutError(
            "custom_ops: this vLLM's rotary kernel rotates MLA's keys by the wrong positions on the CPU; start "
            """it with --compilation-config '{"custom_ops": ["all", "-rotary_embedding"]}' """
            "so that it computes them in torch"
        )


def _read_back(write: Callable[[Values, Values], Values], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which number lies at each place of the block; values come back as -1 - number. One write per digit."""
    found = np.zeros(2 * numbers.size, np.int64)
    factor = 1
    while True:
        digits = (numbers // factor % DIGIT).astype(np.float32)
        block = write(digits, -1 - digits).astype(np.int64)
        found += np.where(block < 0, (block + 1) * factor, block * factor)
        factor *= DIGIT
        if factor > numbers.max():
            break
    negative = write(np.zeros_like(digits), -1 - np.zeros_like(digits)) < 0
    return np.where(negative, found - 1, found)
