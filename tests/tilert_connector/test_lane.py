"""A lane against a decode node that is scripted, message by message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq
import zmq.asyncio

from tests.tilert_connector.paged_model import PagedModel, fingerprint
from tests.tilert_connector.pair import until
from tests.tilert_connector.test_delivery import StillWriter
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.protocol import (
    Accepted,
    FromDecode,
    FromPrefill,
    Hello,
    Offer,
    Welcome,
    Withdraw,
    decode_from_prefill,
    encode,
)
from tilert_connector.sender import Sender
from tilert_connector.tracker import Opening, Step
from tilert_connector.transport import Endpoint, make_carriers


class RecordingCarrier:
    def __init__(self) -> None:
        self.opened: list[int] = []

    def open(self, endpoint: Endpoint, generation: int, key: bytes) -> StillWriter:
        self.opened.append(generation)
        return StillWriter()

    def close(self) -> None:
        return


class Script:
    """The decode node's control socket."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.peer = b""

    async def hear(self) -> FromPrefill:
        self.peer, data = await asyncio.wait_for(self.socket.recv_multipart(), 5)
        return decode_from_prefill(data)

    async def say(self, message: FromDecode) -> None:
        await self.socket.send_multipart([self.peer, encode(message)])


@asynccontextmanager
async def offered() -> AsyncIterator[tuple[Sender, Script, RecordingCarrier, Offer]]:
    """A sender that was welcomed, and its offer of a prompt that must not be shared."""
    context, carrier = zmq.asyncio.Context(), RecordingCarrier()
    script = Script(context)
    carriers = make_carriers({"still": lambda: carrier})
    sender = Sender(ConnectorConfig(), 0, fingerprint(), PagedModel("mla", 16, 4).exporter, carriers)
    claim = Claim(host="127.0.0.1", ctrl_port=script.port, handoff="h")
    try:
        sender.begin(Step(openings=(Opening(request="r", claim=claim, tokens=20),)))
        assert isinstance(await script.hear(), Hello)
        await script.say(Welcome(instance="d", transport="still", data_port=1, capacity=99))
        offer = await script.hear()
        assert isinstance(offer, Offer)
        yield sender, script, carrier, offer
    finally:
        await asyncio.to_thread(sender.close)
        context.destroy(linger=0)


@pytest.mark.contract("H3")
async def test_an_acceptance_of_a_round_that_is_over_opens_nothing() -> None:
    async with offered() as (sender, script, carrier, first):
        assert first.round == 0
        sender.begin(Step(preempted=("r",)))
        second = await script.hear()
        assert isinstance(second, Offer) and second.round == 1
        for round_, generation in ((0, 1), (1, 2), (0, 3)):
            await script.say(Accepted(handoff="h", rank=0, round=round_, generation=generation, key=bytes(16)))
        await until(lambda: bool(carrier.opened))
        await asyncio.sleep(0.1)
        assert carrier.opened == [2]


@pytest.mark.contract("H2", "H12")
@pytest.mark.parametrize("held", [1, 64])
async def test_a_decode_node_that_says_it_holds_what_it_was_not_told_gets_nothing(held: int) -> None:
    async with offered() as (_, script, carrier, offer):
        assert (offer.chain, offer.rest) == (b"", ())
        await script.say(Accepted(handoff="h", rank=0, round=0, generation=1, key=bytes(16), held=held))
        said = await script.hear()
        assert isinstance(said, Withdraw) and f"says it holds {held} leading tokens" in said.reason
        assert not carrier.opened
