"""One handoff into one writer: what may be read when, and what is posted."""

import itertools

import pytest

from tests.tilert_connector.paged_model import PagedModel
from tilert_connector.claim import Claim
from tilert_connector.delivery import Delivery
from tilert_connector.errors import WireError
from tilert_connector.outgoing import Outgoing, Phase
from tilert_connector.protocol import Accepted, Welcome
from tilert_connector.tracker import Opening
from tilert_connector.transport import Endpoint, Frame, make_carriers

WELCOME = Welcome(instance="d", transport="still", data_port=1, capacity=100)


class StillWriter:
    """Takes everything, moves nothing by itself; also its own carrier."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.moved = self.confirmed = 0
        self.closed = False

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> "StillWriter":
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
        exporter = PagedModel("gqa", 16, 8).exporter
        opening = Opening(request="r", claim=Claim(host="d", ctrl_port=1, handoff="h"), tokens=tokens)
        self.delivery = Delivery(exporter, carriers, 1 << 20)
        self.outgoing = Outgoing(opening, 1e9, len(exporter.layers))
        self.outgoing.offered_round = 0
        self.accept(0)

    def computed(self, blocks: list[int], available: int, restart: bool = False) -> None:
        self.outgoing.extend(blocks, restart)
        self.outgoing.fill(available)

    def accept(self, generation: int) -> None:
        accepted = Accepted(handoff="h", rank=0, round=0, generation=generation + 1, key=bytes(16))
        self.delivery.open(self.outgoing, accepted, "127.0.0.1", WELCOME)


@pytest.mark.contract("H6")
def test_after_revoke_returned_nothing_is_read_or_moved() -> None:
    sent = Sent(tokens=64)
    sent.computed([0, 1], 32, restart=False)
    assert not sent.delivery.advance(sent.outgoing)
    posted, moved = len(sent.writer.frames), sent.writer.moved
    assert posted and moved
    sent.outgoing.revoke()
    assert not sent.delivery.advance(sent.outgoing)
    sent.computed([2, 3, 4, 5], 64, restart=True)
    assert not sent.delivery.advance(sent.outgoing)
    assert (len(sent.writer.frames), sent.writer.moved) == (posted, moved)


@pytest.mark.contract("H2", "H6")
def test_blocks_replaced_without_a_word_of_preemption_start_a_new_round() -> None:
    sent = Sent(tokens=64)
    sent.computed([0, 1], 32, restart=False)
    sent.delivery.advance(sent.outgoing)
    posted = len(sent.writer.frames)
    sent.computed([4, 5, 6, 7], 64, restart=True)
    assert (sent.outgoing.round, sent.outgoing.blocks) == (1, [4, 5, 6, 7])
    assert not sent.delivery.advance(sent.outgoing) and len(sent.writer.frames) == posted


@pytest.mark.contract("H2")
def test_only_the_end_of_the_prompt_is_part_of_a_tile() -> None:
    sent = Sent(tokens=40)
    for available, reached in ((5, 0), (20, 16), (31, 16), (32, 32), (39, 32), (40, 40)):
        sent.computed([], available, restart=False)
        sent.outgoing.blocks = [0, 1, 2]
        sent.delivery.advance(sent.outgoing)
        assert max((frame.last for frame in sent.writer.frames), default=0) == reached


@pytest.mark.contract("H3")
def test_done_is_said_once_and_only_when_all_is_confirmed() -> None:
    sent = Sent(tokens=16)
    sent.computed([0], 16, restart=False)
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
    sent.computed([0], 16, restart=False)
    assert not sent.delivery.advance(sent.outgoing) and not sent.writer.frames


def test_a_transport_that_we_do_not_have_is_named() -> None:
    sent = Sent(tokens=16)
    accepted = Accepted(handoff="h", rank=0, round=0, generation=1, key=bytes(16))
    other = Welcome(instance="d", transport="pigeon", data_port=1, capacity=100)
    with pytest.raises(WireError, match="decode node has 'pigeon', prefill node has still"):
        sent.delivery.open(sent.outgoing, accepted, "127.0.0.1", other)


@pytest.mark.contract("H2", "H10")
def test_a_layer_of_the_last_chunk_leaves_before_its_step_ends() -> None:
    sent = Sent(tokens=40)
    sent.computed([0], 16)
    sent.delivery.advance(sent.outgoing)
    planes = sent.delivery._exporter.planes_of(0, 3)
    assert {(frame.first, frame.last) for frame in sent.writer.frames} == {(0, 16)}
    del sent.writer.frames[:]
    sent.outgoing.extend([1, 2], restart=False)
    sent.delivery.advance(sent.outgoing)
    assert not sent.writer.frames
    for layer in range(3):
        sent.outgoing.saved.add(layer)
        sent.delivery.advance(sent.outgoing)
        (frame,) = sent.writer.frames
        assert (frame.plane_first, frame.plane_last, frame.first, frame.last) == (4 * layer, 4 * layer + 4, 16, 40)
        del sent.writer.frames[:]
    sent.outgoing.fill(40)
    sent.delivery.advance(sent.outgoing)
    assert not sent.writer.frames and planes == ((0, 12),)


@pytest.mark.contract("H2", "H6")
def test_saved_layers_of_a_step_whose_blocks_were_taken_away_are_not_sent() -> None:
    sent = Sent(tokens=16)
    sent.outgoing.extend([0], restart=False)
    sent.outgoing.saved.add(0)
    sent.outgoing.revoke()
    sent.outgoing.offered_round = 1
    sent.accept(1)
    sent.outgoing.extend([5], restart=True)
    sent.delivery.advance(sent.outgoing)
    assert not sent.writer.frames


@pytest.mark.contract("H12")
@pytest.mark.parametrize("start", [1, 15, 16, 17, 39])
def test_only_what_is_missing_is_posted(start: int) -> None:
    sent = Sent(tokens=40)
    sent.outgoing.start = start
    sent.accept(1)
    for available in (5, 20, 32, 40):
        sent.computed([], available)
        sent.outgoing.blocks = [0, 1, 2]
        sent.delivery.advance(sent.outgoing)
    posted = sorted({(frame.first, frame.last) for frame in sent.writer.frames})
    assert posted[0][0] == start and posted[-1][1] == 40
    assert all(one[1] == other[0] for one, other in itertools.pairwise(posted))
