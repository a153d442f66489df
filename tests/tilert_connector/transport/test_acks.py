"""Confirmations, in whatever pieces they come."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.errors import WireError
from tilert_connector.transport.acks import Acks
from tilert_connector.transport.frame import ACK


@given(st.integers(0, 20), st.lists(st.integers(0, 80), max_size=10))
def test_each_is_counted_once_however_the_bytes_are_cut(count: int, cuts: list[int]) -> None:
    acks, data = Acks(), b"".join(ACK.pack(index) for index in range(count))
    acks.posted = count
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    taken = sum(acks.take(data[first:last]) for first, last in itertools.pairwise(places))
    assert taken == acks.completed == count


@pytest.mark.contract("H3")
@pytest.mark.parametrize("index", [0, 2, 3, 2**32 - 1])
def test_another_one_than_the_next_or_one_that_was_not_posted_is_an_error(index: int) -> None:
    acks = Acks()
    acks.posted = 2
    acks.take(ACK.pack(0))
    with pytest.raises(WireError, match=f"acknowledged frame {index}, expected 1"):
        acks.take(ACK.pack(index))
    assert acks.completed == 1
