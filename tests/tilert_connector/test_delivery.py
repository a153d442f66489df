"""One handoff into one writer: what may be read when, and what is posted."""

import pytest

from tests.tilert_connector.paged_model import PagedModel
from tilert_connector.claim import Claim
from tilert_connector.delivery import Delivery
from tilert_connector.errors import WireError
from tilert_connector.outgoing import Outgoing, Phase
from tilert_connector.protocol import Accepted, Welcome
from tilert_connector.transport import Endpoint, Frame, make_carriers

WELCOME = Welcome(instance="d", transport="still", data_port=1, capacity=100)


class StillWriter:
    """Takes everything, moves nothing by itself; also its own carrier."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.moved = self.confirmed = 0
        self.closed = False

    def open(self, endpoint: Endpoint, generation: int, key: bytes, place: bytes) -> "StillWriter":
        return self

    def room(self) -> bool:
        return True

    def write(self, frame: Frame, pieces: list[memoryview]) -> None:
        self.frames.append(frame)

    def progress(self) -> None:
        self.moved += 1

    def completed(self) -> int:
        return self.confirmed

    def interest(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


class Sent:
    def __init__(self, tokens: int) -> None:
        self.writer = StillWriter()
        carriers = make_carriers({"still": lambda: self.writer})
        self.delivery = Delivery(PagedModel("gqa", 16, 8).exporter, carriers, 1 << 20)
        self.outgoing = Outgoing("r", Claim(host="d", ctrl_port=1, handoff="h"), tokens, deadline=1e9)
        self.outgoing.offered_round = 0
        self.accept(0)

    def accept(self, generation: int) -> None:
        accepted = Accepted(handoff="h", rank=0, round=0, generation=generation + 1, key=bytes(16))
        self.delivery.open(self.outgoing, accepted, "127.0.0.1", WELCOME)


@pytest.mark.contract("H6")
def test_after_revoke_returned_nothing_is_read_or_moved() -> None:
    sent = Sent(tokens=64)
    sent.outgoing.extend([0, 1], 32, restart=False)
    assert not sent.delivery.advance(sent.outgoing)
    posted, moved = len(sent.writer.frames), sent.writer.moved
    assert posted and moved
    sent.outgoing.revoke()
    assert not sent.delivery.advance(sent.outgoing)
    sent.outgoing.extend([2, 3, 4, 5], 64, restart=True)
    assert not sent.delivery.advance(sent.outgoing)
    assert (len(sent.writer.frames), sent.writer.moved) == (posted, moved)


@pytest.mark.contract("H2", "H6")
def test_blocks_replaced_without_a_word_of_preemption_start_a_new_round() -> None:
    sent = Sent(tokens=64)
    sent.outgoing.extend([0, 1], 32, restart=False)
    sent.delivery.advance(sent.outgoing)
    posted = len(sent.writer.frames)
    sent.outgoing.extend([4, 5, 6, 7], 64, restart=True)
    assert (sent.outgoing.round, sent.outgoing.blocks) == (1, [4, 5, 6, 7])
    assert not sent.delivery.advance(sent.outgoing) and len(sent.writer.frames) == posted


@pytest.mark.contract("H2")
def test_only_the_end_of_the_prompt_is_part_of_a_tile() -> None:
    sent = Sent(tokens=40)
    for available, reached in ((5, 0), (20, 16), (31, 16), (32, 32), (39, 32), (40, 40)):
        sent.outgoing.extend([], available, restart=False)
        sent.outgoing.blocks = [0, 1, 2]
        sent.delivery.advance(sent.outgoing)
        assert max((frame.last for frame in sent.writer.frames), default=0) == reached


@pytest.mark.contract("H3")
def test_done_is_said_once_and_only_when_all_is_confirmed() -> None:
    sent = Sent(tokens=16)
    sent.outgoing.extend([0], 16, restart=False)
    assert not sent.delivery.advance(sent.outgoing)
    sent.writer.confirmed = len(sent.writer.frames)
    assert sent.delivery.advance(sent.outgoing)
    assert sent.writer.closed and sent.outgoing.phase is Phase.DONE
    assert not sent.delivery.advance(sent.outgoing)


@pytest.mark.contract("H6")
def test_a_handoff_that_ended_meanwhile_is_not_opened() -> None:
    sent = Sent(tokens=16)
    assert sent.outgoing.end("failed", "late") and not sent.outgoing.end("failed", "again")
    sent.writer.closed = False
    sent.accept(1)
    assert sent.writer.closed and sent.outgoing.phase is Phase.ENDED
    sent.outgoing.extend([0], 16, restart=False)
    assert not sent.delivery.advance(sent.outgoing) and not sent.writer.frames


def test_a_transport_that_we_do_not_have_is_named() -> None:
    sent = Sent(tokens=16)
    accepted = Accepted(handoff="h", rank=0, round=0, generation=1, key=bytes(16))
    other = Welcome(instance="d", transport="pigeon", data_port=1, capacity=100)
    with pytest.raises(WireError, match="decode node has 'pigeon', prefill node has still"):
        sent.delivery.open(sent.outgoing, accepted, "127.0.0.1", other)
