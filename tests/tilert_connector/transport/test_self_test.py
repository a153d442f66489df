"""The proof at start-up: what passes it, and what it says of what does not."""

import logging
from collections.abc import Callable

import pytest

from speedtier.errors import ConfigError
from tests.tilert_connector.transport.bench import CAPACITY, LAYOUT
from tilert_connector.errors import WireError
from tilert_connector.transport import Grant, Pattern, Report, SlotPages, TestedSink, allocate_slots, open_sink
from tilert_connector.transport.shm_sink import ShmSink

SIZE = LAYOUT.slot_bytes(CAPACITY)


@pytest.mark.contract("H8")
@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_a_transport_that_works_says_so_and_leaves_the_slot_clean(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    slots = allocate_slots(transport, 2, SIZE)
    sink = TestedSink(open_sink(transport, LAYOUT, slots, CAPACITY, "127.0.0.1"), LAYOUT, slots[0].array, CAPACITY)
    with caplog.at_level(logging.INFO):
        await sink.start()
    await sink.close()
    assert f"transport {transport}: self-test moved" in caplog.text
    assert sink.measured is not None and sink.measured.bytes == CAPACITY * LAYOUT.token_bytes
    assert not slots[0].array.any()


class Misplacing(ShmSink):
    """Confirms everything and moves one byte of it."""

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> bytes:
        def spoiled(one: Report) -> None:
            self._slots[grant.slot].array[17] ^= 1
            report(one)

        return super().admit(grant, spoiled)


@pytest.mark.contract("H8")
async def test_one_wrong_byte_stops_the_node_with_the_reason() -> None:
    slots = [SlotPages(SIZE)]
    sink = TestedSink(Misplacing(LAYOUT, slots, CAPACITY), LAYOUT, slots[0].array, CAPACITY)
    with pytest.raises(ConfigError, match="self-test of shm failed: all was confirmed, but"):
        await sink.start()


@pytest.mark.parametrize("name", ["shm", "nixl", "mooncake"])
def test_slots_of_the_wrong_kind_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="slots: transport"):
        open_sink(name, LAYOUT, allocate_slots("tcp", 1, SIZE), CAPACITY, "127.0.0.1")


def test_an_unknown_transport_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="transport: 'pigeon' is none of tcp, shm, nixl, mooncake"):
        open_sink("pigeon", LAYOUT, [SlotPages(SIZE)], CAPACITY, "127.0.0.1")


def test_a_pattern_differs_in_every_word() -> None:
    words = Pattern(LAYOUT, CAPACITY).source.view("u8")
    assert len(set(words.tolist())) == len(words)


def test_a_missing_engine_names_the_way_to_get_it(mocker) -> None:  # type: ignore[no-untyped-def]
    mocker.patch.dict("sys.modules", {"nixl": None})
    from tilert_connector.transport import open_carriers

    with pytest.raises(WireError, match="pip install --no-deps nixl"):
        open_carriers(LAYOUT, [])("nixl")
