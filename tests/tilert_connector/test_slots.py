"""Slots and generations under any order of taking and giving back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.chain import BLOCK, Prefix, describe, root
from tilert_connector.slots import Slots

ORIGIN = root("model", "")


def prefix(first: int, blocks: int, more: int = 0) -> Prefix:
    """`blocks` blocks and `more` tokens; the first token tells conversations apart."""
    return describe([first] + [7] * (blocks * BLOCK + more - 1), ORIGIN)


@pytest.mark.contract("H3", "H4")
@given(total=st.integers(1, 4), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_no_generation_twice_and_no_slot_to_two(total: int, moves: list[tuple[bool, int]]) -> None:
    slots, held, seen = Slots(total), dict[int, int](), set[int]()
    for take, number in moves:
        if take:
            taken = slots.take(prefix(number % 3, 2).chain if number % 2 else b"")
            assert (taken is None) == (len(held) == total)
            if taken is not None:
                assert taken.slot not in held and taken.generation not in seen
                held[taken.slot] = taken.generation
                seen.add(taken.generation)
        else:
            generation = number
            slot = number % total
            mine = held.get(slot) == generation
            assert slots.release(slot, generation, prefix(number % 3, 2) if number % 2 else None) is mine
            if mine:
                del held[slot]
        assert slots.holders() == held
        assert not set(slots.resident()) & set(held)


@pytest.mark.contract("H12")
def test_state_is_found_again_where_it_lies_and_only_once() -> None:
    slots = Slots(3)
    taken = [slots.take() for _ in range(3)]
    for number, one in enumerate(taken):
        assert one is not None
        slots.release(one.slot, one.generation, prefix(number, 3, 5))
    again = slots.take(prefix(1, 4).chain)
    assert again is not None and taken[1] is not None
    assert (again.slot, again.blocks, again.tail) == (taken[1].slot, 3, (7,) * 5)
    twice = slots.take(prefix(1, 4).chain)
    assert twice is not None and twice.blocks == 0
    assert slots.resident() == {slot: 3 * BLOCK + 5 for slot in {0, 1, 2} - {again.slot, twice.slot}}


@pytest.mark.contract("H12")
def test_a_short_common_beginning_does_not_cost_a_long_conversation() -> None:
    slots = Slots(2)
    one = slots.take()
    assert one is not None
    slots.release(one.slot, one.generation, prefix(1, 10))
    other = slots.take(describe([1] + [7] * (BLOCK - 1) + [8] * BLOCK, ORIGIN).chain)
    assert other is not None and (other.slot != one.slot, other.blocks) == (True, 0)
    assert slots.resident() == {one.slot: 10 * BLOCK}


@pytest.mark.contract("H12")
def test_the_longest_unused_goes_first_and_another_tenant_gets_nothing_of_it() -> None:
    slots = Slots(2)
    first, second = slots.take(), slots.take()
    assert first is not None and second is not None
    slots.release(second.slot, second.generation, prefix(2, 2))
    slots.release(first.slot, first.generation, prefix(1, 2))
    theirs = describe([2] + [7] * (2 * BLOCK - 1), root("model", "another tenant"))
    taken = slots.take(theirs.chain)
    assert taken is not None and (taken.slot, taken.blocks, taken.tail) == (second.slot, 0, ())
    unshared = slots.take()
    assert unshared is not None and (unshared.slot, unshared.blocks, unshared.tail) == (first.slot, 0, ())
