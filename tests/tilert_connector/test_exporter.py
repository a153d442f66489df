"""Pieces of the paged cache are the spans of the planes, and no copy of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tilert_connector.paged_model import PagedModel
from tilert_connector.errors import LayoutError
from tilert_connector.exporter import Exporter, PagedPlane
from tilert_connector.layout import gqa_layout
from tilert_connector.paged import head_owner
from tilert_connector.transport import Frame

BLOCKS = 8


@pytest.mark.contract("H2")
@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(["mla", "gqa"]),
    ends=st.tuples(st.integers(0, 60), st.integers(1, 60)),
    seed=st.integers(0, 1000),
)
def test_pieces_are_the_spans_in_order(family: str, ends: tuple[int, int], seed: int) -> None:
    model = PagedModel(family, 16, BLOCKS)
    first, last = min(ends), max(ends)
    first = min(first, last - 1)
    blocks = [int(block) for block in np.random.default_rng(seed).permutation(BLOCKS)[:4]]
    model.prefill(blocks, 0, last, seed)
    planes = len(model.layout.planes)
    frame = Frame(0, planes, first, last, model.layout.token_bytes * (last - first))
    got = b"".join(model.exporter.pieces(frame, blocks))
    slot, offsets = model.expected(last, 64, seed), model.layout.offsets(64)
    wanted = b"".join(
        slot[offsets[index] + start : offsets[index] + start + size].tobytes()
        for index, plane in enumerate(model.layout.planes)
        for start, size in plane.spans(first, last)
    )
    assert got == wanted and len(got) == frame.size


@pytest.mark.contract("H6")
@pytest.mark.parametrize("family", ["mla", "gqa"])
def test_whole_tiles_are_the_cache_itself(family: str) -> None:
    model = PagedModel(family, 16, BLOCKS)
    pieces = model.exporter.pieces(Frame(0, len(model.layout.planes), 0, 32, 0), [3, 5])
    model.prefill([3, 5], 0, 32, seed=7)  # written after the pieces were taken
    assert b"".join(pieces) == b"".join(model.exporter.pieces(Frame(0, len(model.layout.planes), 0, 32, 0), [3, 5]))
    assert any(b"".join(pieces))


def test_neighbouring_blocks_travel_as_one_piece() -> None:
    layout = gqa_layout([0], 4, 1, 8, 16)
    rows = np.zeros(4 * 16 * 32, np.uint8)
    exporter = Exporter(layout, 16, {1: PagedPlane(rows, 16 * 32, 0)})
    assert [len(piece) for piece in exporter.pieces(Frame(1, 2, 0, 48, 0), [0, 1, 2])] == [3 * 16 * 32]
    assert [len(piece) for piece in exporter.pieces(Frame(1, 2, 0, 48, 0), [2, 0, 1])] == [512, 1024]
    assert exporter.planes == ((1, 2),)


def test_a_tile_that_is_no_block_is_refused() -> None:
    with pytest.raises(LayoutError, match="tile of 16 tokens in blocks of 32"):
        Exporter(gqa_layout([0], 4, 1, 8, 16), 32, {0: PagedPlane(np.zeros(8, np.uint8), 8, 0)})


@pytest.mark.parametrize(("heads", "ranks"), [(8, 1), (8, 2), (8, 8), (2, 8), (1, 4), (4, 4)])
def test_every_head_has_one_owner(heads: int, ranks: int) -> None:
    owned = [head for rank in range(ranks) for head in head_owner(heads, rank, ranks).values()]
    assert sorted(owned) == list(range(heads))
