"""Keys and where they went last, in bounded memory."""

from router.lately import Lately


def test_the_surest_known_key_decides_and_a_newer_visit_counts() -> None:
    lately: Lately[str] = Lately()
    lately.went(["a", "b"], "one")
    lately.went(["b"], "two")
    assert lately.server(["x", "b", "a"]) == "two" and lately.server(["a"]) == "one" and lately.server(["x"]) is None
    lately.forget("two")
    assert lately.server(["b", "a"]) == "one" and lately.server(["b"]) is None


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    lately: Lately[int] = Lately(most=10)
    for number in range(100):
        lately.went([number, number + 1000], "one")
    assert len(lately) == 10
    assert lately.server([5]) is None and lately.server([99]) == "one"
