"""A decode node remembers only so many greetings; a prefill node that was forgotten greets again."""

import pytest

from tests.tilert_connector.pair import Pair, pair
from tilert_connector import HandoffFailed, ReceiverConfig
from tilert_connector.protocol import Hello, encode


async def handed(both: Pair, name: str) -> None:
    both.prefill(name, 40, [1, 2, 3])
    try:
        both.receiver.release(await both.receiver.committed(f"h-{name}", 10))
    finally:
        await both.reported(name)


def greetings(both: Pair, count: int, first: int = 0) -> None:
    hello = encode(Hello(instance="other", fingerprint=both.mark))
    for number in range(first, first + count):
        both.receiver.take([b"other-%d" % number, hello])


@pytest.mark.contract("H13")
async def test_who_was_forgotten_loses_one_request_at_most() -> None:
    async with pair(receiver=ReceiverConfig(remember=4)) as both:
        await handed(both, "a")
        greetings(both, 8)
        with pytest.raises(HandoffFailed, match="no hello of yours"):
            await handed(both, "b")
        await handed(both, "c")


async def test_who_hands_over_is_not_forgotten_for_those_who_only_greet() -> None:
    async with pair(receiver=ReceiverConfig(remember=4)) as both:
        for number in range(4):
            await handed(both, f"r{number}")
            greetings(both, 3, first=3 * number)
