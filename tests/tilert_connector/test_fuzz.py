"""A live receiver under frames that nobody should send: it survives, keeps nothing, and good handoffs still arrive.

SPEEDTIER_FUZZ_SEED repeats a run; SPEEDTIER_SOAK_S (set by `make soak`) makes it a million frames.
"""

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import zmq
import zmq.asyncio

from tests.tilert_connector.mutations import Frames
from tests.tilert_connector.pair import CAPACITY, Pair, pair, until
from tilert_connector import ReceiverConfig
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.protocol import MAX_MESSAGE_BYTES, Accepted, Hello, Offer, Welcome, decode_from_decode, encode
from tilert_connector.ticket import Ticket, node_name, sign
from tilert_connector.tracker import Chunk, Opening, Step
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, HEADER, HEADER_MAGIC

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]
LONG = "SPEEDTIER_SOAK_S" in os.environ
FRAMES = 1_000_000 if LONG else 30_000
WIRE_FRAMES = 30_000 if LONG else 3_000
ROUNDS = 1_000 if LONG else 25
CONNECTIONS = 1_000 if LONG else 40
PEERS = [b"peer-%d" % number for number in range(8)]
GROWTH = 96 << 20
"""Bytes by which the process may grow; what is remembered of handoffs that ended is bounded by `remember`."""


@pytest.fixture
def seed(caplog: pytest.LogCaptureFixture) -> int:
    caplog.set_level(logging.CRITICAL, "tilert_connector")  # a line for each handoff that fails would fill memory
    found = int(os.environ.get("SPEEDTIER_FUZZ_SEED", secrets.randbits(32)))
    print(f"SPEEDTIER_FUZZ_SEED={found}")
    return found


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Target:
    """A pair, and good handoffs to prove that its receiver works."""

    def __init__(self, both: Pair) -> None:
        self.both = both
        self.proofs = 0

    async def prove(self) -> None:
        """Once what the frames opened has ended by its timers, a good handoff arrives byte for byte."""
        await until(lambda: not self.both.receiver.status()["slots_held"], within=30)
        self.proofs += 1
        name, seed, tokens = f"good-{self.proofs}", self.proofs, 150
        for slot in self.both.slots:
            slot[:] = 0
        self.both.prefill(name, tokens, list(range(10)), seed)
        held = await self.both.receiver.committed(f"h-{name}", 20)
        assert np.array_equal(self.both.slot(held.slot), self.both.model.expected(tokens, CAPACITY, seed))
        self.both.receiver.release(held)
        await self.both.reported(name)

    def bounded(self) -> None:
        """Nothing is kept beyond its limit."""
        status = self.both.receiver.status()
        assert sum(status["open"].values()) <= 64
        assert len(status["prefill_instances"]) <= 512


@asynccontextmanager
async def target() -> AsyncIterator[Target]:
    config = ReceiverConfig(handoff_s=1.0, slot_wait_s=0.3, claim_s=0.3, drain_s=0.5, max_handoffs=64, remember=512)
    async with pair(slots=2, receiver=config) as both:
        yield Target(both)


async def test_frames_that_come_to_the_receiver(seed: int) -> None:
    """In process: decoder and message handler without the socket."""
    chance = random.Random(seed)
    async with target() as one:
        take, frames = one.both.receiver.take, Frames(seed, planes=len(one.both.model.layout.planes))
        await one.prove()
        before = 0
        for number in range(FRAMES):
            take([chance.choice(PEERS), frames.next()])
            if number % 200 == 0:
                await asyncio.sleep(0)  # its timers and tasks run
            if number == FRAMES // 20:
                before = resident()
            if number % (FRAMES // 4) == FRAMES // 8:
                await asyncio.sleep(0.05)
                one.bounded()
                await one.prove()
        await one.prove()
        messages = one.both.receiver.status()["messages"]
        assert messages["malformed"] > FRAMES / 10 and messages["refused"] > FRAMES / 50
        assert messages["ignored"] > FRAMES / 50
        assert resident() - before < GROWTH
        assert one.both.receiver.status()["ended"]["committed"] == one.proofs


async def test_frames_that_come_over_the_wire(seed: int) -> None:
    """Through ZeroMQ: several frames in a message, none, oversized ones, identities that others have."""
    chance = random.Random(seed)
    async with target() as one:
        frames = Frames(seed, planes=len(one.both.model.layout.planes))
        context = zmq.Context()
        try:
            await one.prove()
            peer = speaker(context, chance, one.both.receiver.ctrl_port)
            for number in range(WIRE_FRAMES):
                if number % 200 == 199:
                    peer.close(linger=50)
                    peer = speaker(context, chance, one.both.receiver.ctrl_port)
                parts = [frames.next() for _ in range(chance.choice((1, 1, 1, 1, 2, 3, 5)))]
                if chance.random() < 0.01:
                    parts.append(bytes(MAX_MESSAGE_BYTES + 1))  # ZeroMQ closes such a connection
                with contextlib.suppress(zmq.Again):  # an identity that is taken: nobody listens to it
                    peer.send_multipart(parts, zmq.NOBLOCK)
                await asyncio.sleep(0)
                if number in (WIRE_FRAMES // 3, WIRE_FRAMES // 2):
                    await one.prove()
            await one.prove()
            peer.close(linger=0)
            one.bounded()
            messages = one.both.receiver.status()["messages"]
            assert messages["malformed"] > WIRE_FRAMES / 20 and messages["refused"] > WIRE_FRAMES / 100
        finally:
            context.destroy(linger=0)


def speaker(context: "zmq.Context[zmq.Socket[bytes]]", chance: random.Random, port: int) -> "zmq.Socket[bytes]":
    """A socket that connects to the control port, perhaps as somebody else, perhaps of a kind that adds a frame."""
    made = context.socket(chance.choice((zmq.DEALER, zmq.DEALER, zmq.DEALER, zmq.REQ)))
    made.linger = 0
    if made.type == zmq.REQ:
        made.setsockopt(zmq.REQ_RELAXED, 1)
    elif chance.random() < 0.5:
        made.setsockopt(zmq.IDENTITY, chance.choice((b"same", b"\1", b"x" * 255)))
    made.connect(f"tcp://127.0.0.1:{port}")
    return made


def connections(chance: random.Random, ports: tuple[int, int], grants: list[tuple[int, bytes]]) -> list[socket.socket]:
    """One connection to the control or data port that says something wrong; those that are to stay open."""
    sock = socket.create_connection(("127.0.0.1", chance.choice(ports)), timeout=5)
    generation, key = chance.choice([*grants, (chance.randrange(2**64), chance.randbytes(16))])
    attach = ATTACH.pack(ATTACH_MAGIC, generation, chance.choice((key, key, b"\0" * 16)))
    numbers = [chance.choice((0, 1, 2, 3, 2**32 - 1, chance.randrange(2**32))) for _ in range(5)]
    header = HEADER.pack(HEADER_MAGIC, *numbers, generation, chance.choice((0, 1, 2**64 - 1)))
    said = chance.choice(
        (
            chance.randbytes(200),
            attach[: chance.randrange(len(attach))],
            attach,
            attach + header,
            attach + header[: chance.randrange(len(header))],
            attach + chance.randbytes(4096),
            attach + header + chance.randbytes(10_000),
            b"\xff\0\0\0\0\0\0\0\1\x7f" + chance.randbytes(60),
            b"GET / HTTP/1.1\r\n\r\n",
        )
    )
    try:
        sock.sendall(said)
        if chance.random() < 0.3:  # reset instead of an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    if chance.random() < 0.2:
        return [sock]
    sock.close()
    return []


async def test_connections_that_say_anything(seed: int) -> None:
    """To both ports, with keys that were really given out among the wrong ones."""
    chance = random.Random(seed)
    async with target() as one:
        receiver = one.both.receiver
        open_: list[socket.socket] = []
        context = zmq.asyncio.Context()
        try:
            await one.prove()
            for number in range(CONNECTIONS):
                grants = [await granted(one, context, number)] if number % 4 == 0 else []
                ports = receiver.ctrl_port, receiver.data_port
                open_ += await asyncio.to_thread(connections, chance, ports, grants)
                if number == CONNECTIONS // 2:
                    await one.prove()
            began = time.monotonic()
            await one.prove()
            assert time.monotonic() - began < 30
            one.bounded()
        finally:
            for sock in open_:
                sock.close()
            context.destroy(linger=0)


async def granted(one: Target, context: zmq.asyncio.Context, number: int) -> tuple[int, bytes]:
    """A generation and its key, given to a peer that then says nothing more; zeros if no slot was free."""
    peer = context.socket(zmq.DEALER)
    peer.connect(f"tcp://127.0.0.1:{one.both.receiver.ctrl_port}")
    planes = ((0, len(one.both.model.layout.planes)),)
    hello = Hello(instance="fuzz", fingerprint=one.both.mark)
    offer = Offer(handoff=f"held-{number}", rank=0, round=0, tokens=8, planes=planes)
    for message in (hello, offer):
        await peer.send(encode(message))
    found = 0, bytes(16)
    while await peer.poll(400):
        message = decode_from_decode(await peer.recv())
        if isinstance(message, Accepted):
            found = message.generation, message.key
            break
    peer.close(linger=0)
    return found


async def test_with_a_key_frames_take_no_slot(seed: int, tmp_path: Path) -> None:
    """Good handoffs go on all the while, with all the usual time limits."""
    chance, key = random.Random(seed), tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    async with pair(receiver=ReceiverConfig(ticket_key_file=str(key), remember=512)) as both:
        frames, receiver = Frames(seed, len(both.model.layout.planes), handoffs=10_000), both.receiver
        for number in range(FRAMES // 5):
            receiver.take([chance.choice(PEERS), frames.next()])
            if number % 100 == 0:
                await asyncio.sleep(0)
            if number % (FRAMES // 20) == 0:
                assert receiver.status()["slots_held"] == {}
                claim = signed(both, f"good-{number}", key.read_bytes())
                chunk = Chunk(request=claim.handoff, blocks=tuple(range(10)), available=150)
                opening = Opening(request=claim.handoff, claim=claim, tokens=150)
                step = Step(openings=(opening,), chunks=(chunk,))
                both.step(step, lambda: both.model.prefill(list(range(10)), 0, 150))
                both.finish(claim.handoff)
                receiver.release(await receiver.committed(claim.handoff, 20))
                assert np.array_equal(both.slot(0), both.model.expected(150, CAPACITY))
                await both.reported(claim.handoff)
        assert receiver.status()["messages"]["refused_by_code"]["ticket"] > FRAMES / 500


def signed(both: Pair, handoff: str, key: bytes) -> Claim:
    """A claim with a good ticket."""
    claim, receiver = both.claim(handoff), both.receiver
    ticket = Ticket(
        node=node_name(claim.host, claim.ctrl_port),
        instance=receiver.instance,
        handoff=handoff,
        tokens=150,
        expires=time.time() + 60,
    )
    return Claim(host=claim.host, ctrl_port=claim.ctrl_port, handoff=handoff, ticket=sign([key], ticket))


async def test_answers_that_no_decode_node_should_give(seed: int) -> None:
    """To a prefill node: each handoff ends within its time, and the next decode node is served."""
    limits = ConnectorConfig(handoff_s=1.0, connect_s=0.5, offer_s=0.5, hold_s=1.0, frame_bytes=4096)
    async with pair(sender=limits, receiver=ReceiverConfig()) as both:
        frames = Frames(seed, planes=len(both.model.layout.planes), handoffs=4, from_decode=True)
        (sender,), context = both.senders, zmq.asyncio.Context()
        hostile = context.socket(zmq.ROUTER)
        hostile.linger = 0
        port = hostile.bind_to_random_port("tcp://127.0.0.1")
        answering = asyncio.create_task(answer(hostile, frames))
        try:
            for number in range(ROUNDS):
                name = f"fuzz-{number % 4}"
                claim = Claim(host="127.0.0.1", ctrl_port=port, handoff=name)
                opening = Opening(request=name, claim=claim, tokens=40, prompt=np.arange(40, dtype="<u4").tobytes())
                both.step(Step(openings=(opening,), chunks=(Chunk(request=name, blocks=(1, 2, 3), available=40),)))
                both.finish(name)
                await both.reported(name, within=5)
                (record,) = sender.take_records()
                assert record.end in ("committed", "failed")
            both.prefill("good", 40, [1, 2, 3])
            await both.receiver.committed("h-good", 20)
            assert np.array_equal(both.slot(0), both.model.expected(40, CAPACITY))
            await both.reported("good")
        finally:
            answering.cancel()
            context.destroy(linger=0)


async def answer(hostile: zmq.asyncio.Socket, frames: Frames) -> None:
    """A welcome most of the time, then anything."""
    welcome = encode(Welcome(instance="d", transport="tcp", data_port=1, capacity=99))
    while True:
        peer, data = await hostile.recv_multipart()
        if b"Hello" in data and frames.chance() < 0.8:
            await hostile.send_multipart([peer, welcome])
        for _ in range(12):
            await hostile.send_multipart([peer, frames.next()])
