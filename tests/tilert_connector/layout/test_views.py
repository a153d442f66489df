"""Views and spans are the same bytes in the same order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.layout import Plane, plane_views

planes = st.builds(
    Plane,
    name=st.just("layers.0.k.0"),
    width=st.integers(1, 9),
    item=st.sampled_from([1, 2, 4]),
    tile=st.sampled_from([1, 2, 4, 16]),
)


@given(plane=planes, ends=st.tuples(st.integers(0, 70), st.integers(0, 70)))
@pytest.mark.contract("H2")
def test_views_are_the_spans(plane: Plane, ends: tuple[int, int]) -> None:
    first, last = min(ends), max(ends)
    memory = np.random.default_rng(0).integers(0, 256, plane.capacity_bytes(70), np.uint8)
    spans = b"".join(memory[start : start + size].tobytes() for start, size in plane.spans(first, last))
    views = list(plane_views(memory, plane, first, last))
    assert b"".join(view.tobytes() for view in views) == spans
    assert len(spans) == (last - first) * plane.token_bytes
    assert all(view.base is not None and view.size for view in views)
    assert all(view.flags.c_contiguous for view in views if view.ndim == 1)
