"""How a cache write of vLLM's CPU attention really lays out a block, found by writing a known pattern.

Invariant: the layout that the planes describe (per block and head: keys `[dim][token]`, then values
`[token][dim]`) is used only where the probe has seen it; the kernels choose it by dtype, block size and CPU.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilert_connector.errors import LayoutError

__all__ = ["check_gqa_block"]

Values = NDArray[np.float32]
DIGIT = 256
"""Integers up to this are exact in bfloat16."""


def check_gqa_block(
    write: Callable[[Values, Values], Values], block_size: int, head_dim: int, about: str
) -> None:
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
