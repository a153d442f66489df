"""The probes accept the layout that the planes describe, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest

from tilert_connector.errors import LayoutError
from tilert_connector.layout.probe import Values, check_gqa_block, check_mla_rotation


def block(keys: Values, values: Values) -> Values:
    return np.concatenate([keys.T.ravel(), values.ravel()])


def bfloat16(write: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    def rounded(keys: Values, values: Values) -> Values:
        bits = write(keys, values).view(np.uint32)
        return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    return rounded


@pytest.mark.contract("H7")
@pytest.mark.parametrize(("block_size", "head_dim"), [(16, 32), (128, 64), (128, 512), (600, 64), (1024, 320)])
def test_the_known_layout_passes_in_both_types(block_size: int, head_dim: int) -> None:
    check_gqa_block(block, block_size, head_dim, "test")
    check_gqa_block(bfloat16(block), block_size, head_dim, "test")


def rows(keys: Values, values: Values) -> Values:
    return np.concatenate([keys.ravel(), values.ravel()])


def tiles_of_32(keys: Values, values: Values) -> Values:
    tiles = [keys[start : start + 32].T.ravel() for start in range(0, len(keys), 32)]
    return np.concatenate([*tiles, values.ravel()])


def values_first(keys: Values, values: Values) -> Values:
    return np.concatenate([values.ravel(), keys.T.ravel()])


def values_transposed(keys: Values, values: Values) -> Values:
    return np.concatenate([keys.T.ravel(), values.T.ravel()])


def interleaved(keys: Values, values: Values) -> Values:
    return np.concatenate([keys, values], 1).ravel()


def swapped_far_tokens(keys: Values, values: Values) -> Values:
    keys = keys.copy()
    keys[[0, 256]] = keys[[256, 0]]
    return block(keys, values)


@pytest.mark.contract("H7")
@pytest.mark.parametrize("write", [rows, tiles_of_32, values_first, values_transposed, interleaved, swapped_far_tokens])
def test_every_other_layout_is_refused(write: Callable[[Values, Values], Values]) -> None:
    with pytest.raises(LayoutError, match="cache layout of kernel x"):
        check_gqa_block(write, 320, 64, "kernel x")


@pytest.mark.contract("H7")
def test_rotation_by_wrong_positions_is_refused_with_the_way_out() -> None:
    def right(keys: Values) -> Values:
        angle = np.arange(len(keys), dtype=np.float32)
        return np.stack([np.cos(angle), np.sin(angle)], 1)

    check_mla_rotation(right)
    with pytest.raises(LayoutError, match="-rotary_embedding"):
        check_mla_rotation(lambda keys: keys)
