"""Slots and generations under any order of taking and giving back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.slots import Slots


@pytest.mark.contract("H3", "H4")
@given(total=st.integers(1, 4), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_no_generation_twice_and_no_slot_to_two(total: int, moves: list[tuple[bool, int]]) -> None:
    slots, held, seen = Slots(total), dict[int, int](), set[int]()
    for take, number in moves:
        if take:
            taken = slots.take()
            assert (taken is None) == (len(held) == total)
            if taken is not None:
                slot, generation = taken
                assert slot not in held and generation not in seen
                held[slot] = generation
                seen.add(generation)
        else:
            generation = number
            slot = number % total
            mine = held.get(slot) == generation
            assert slots.release(slot, generation) is mine
            if mine:
                del held[slot]
        assert slots.holders() == held
