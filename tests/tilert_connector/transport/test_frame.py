"""Frames cover what they must, once, in order and within the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.errors import WireError
from tilert_connector.layout import gqa_layout
from tilert_connector.transport import Frame, cut_frames
from tilert_connector.transport.frame import HEADER, pack_header, unpack_header

LAYOUT = gqa_layout([0, 1, 2], 4, 2, 8, 16)


@pytest.mark.contract("H2")
@given(
    planes=st.sampled_from([((0, 12),), ((0, 2), (4, 6)), ((11, 12),)]),
    tiles=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    tail=st.integers(0, 15),
    limit=st.integers(64, 20000),
)
def test_frames_cover_every_plane_once_in_order(
    planes: tuple[tuple[int, int], ...], tiles: tuple[int, int], tail: int, limit: int
) -> None:
    first, last = min(tiles) * 16, max(tiles) * 16 + tail
    reached = {index: first for start, stop in planes for index in range(start, stop)}
    for frame in cut_frames(LAYOUT, planes, first, last, limit):
        count = frame.last - frame.first
        covered = range(frame.plane_first, frame.plane_last)
        assert count > 0 and len(covered) > 0
        for index in covered:
            assert reached[index] == frame.first
            reached[index] = frame.last
        assert frame.size == sum(LAYOUT.planes[index].token_bytes * count for index in covered)
        # One tile of one plane is the least that can travel.
        assert frame.size <= max(limit, 16 * 32)
    assert set(reached.values()) <= {max(first, last)}


def test_headers_come_back_and_others_are_refused() -> None:
    frame = Frame(1, 2, 3, 4, 5)
    assert unpack_header(pack_header(7, 2**62, frame)) == (7, 2**62, frame)
    with pytest.raises(WireError, match="starts with"):
        unpack_header(bytes(HEADER.size))
