"""Prefixes: equal chains mean equal tokens of one model and tenant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilert_connector.chain import BLOCK, DIGEST, describe, follow, root, shared_blocks

IDS = st.lists(st.integers(0, 3), max_size=3 * BLOCK)
ORIGIN = root("model", "")


@pytest.mark.contract("H12")
@given(IDS, IDS)
def test_shared_blocks_are_the_blocks_of_equal_tokens(one: list[int], other: list[int]) -> None:
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert shared_blocks(describe(one, ORIGIN).chain, describe(other, ORIGIN).chain) == common // BLOCK


@pytest.mark.contract("H12")
@given(IDS, st.lists(IDS, max_size=3))
def test_a_prefix_that_grows_is_the_prefix_of_the_whole(prompt: list[int], more: list[list[int]]) -> None:
    prefix, ids = describe(prompt, ORIGIN), list(prompt)
    for part in more:
        prefix, ids = prefix.after(part), ids + part
    whole = describe(ids, ORIGIN)
    assert (prefix.chain, prefix.tokens) == (whole.chain, whole.tokens)
    for blocks in range(len(ids) // BLOCK + 1):
        start = blocks * BLOCK
        known = start >= len(prompt) // BLOCK * BLOCK
        assert prefix.tail(blocks) == (tuple(ids[start : start + BLOCK]) if known else ())


@pytest.mark.contract("H12")
@given(IDS, IDS)
def test_following_a_tail_ends_at_the_first_other_token(held: list[int], tail: list[int]) -> None:
    ids = held + tail
    assert follow(ids, len(held), tail) == len(ids)
    for place in (0, len(tail) // 2, len(tail) - 1):
        if tail:
            other = [*tail[:place], 9, *tail[place + 1 :]]
            assert follow(ids, len(held), other) == len(held) + place
    assert follow(ids, len(held), [*tail, 1, 2]) == len(ids)


@pytest.mark.contract("H12")
def test_tenants_and_models_share_nothing_and_order_counts() -> None:
    ids = list(range(2 * BLOCK))
    mine = describe(ids, ORIGIN).chain
    for other in (root("model", "salt"), root("other", ""), root("mode", "l"), root("", "model")):
        assert shared_blocks(mine, describe(ids, other).chain) == -1
    swapped = describe(ids[BLOCK:] + ids[:BLOCK], ORIGIN).chain
    assert shared_blocks(mine, swapped) == 0 and len(mine) == 3 * DIGEST
    assert shared_blocks(b"", mine) == -1


@pytest.mark.contract("H12")
def test_a_digest_says_nothing_without_what_precedes_it() -> None:
    """Nobody who sees digests of two tenants can tell that they asked the same, or where a text repeats itself."""
    ids = [5] * (3 * BLOCK)
    chains = [describe(ids, origin).chain for origin in (ORIGIN, root("model", "salt"))]
    digests = [chain[n : n + DIGEST] for chain in chains for n in range(0, len(chain), DIGEST)]
    assert len(set(digests)) == len(digests) == 8
