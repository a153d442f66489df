"""Someone who speaks the protocol and means no good, on the control port and on the data port."""

import asyncio
import random
import secrets
import socket

import zmq
import zmq.asyncio

from tests.tilert_connector.faults.terms import MARK
from tilert_connector.protocol import Done, FromPrefill, Hello, Offer, Withdraw, encode
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, HEADER
from tilert_connector.transport.sockets import begin_connect, connected

__all__ = ["Rogue"]


class Rogue:
    """A peer of its own at each act; what it says depends on `rng` alone."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.context = zmq.asyncio.Context()
        self.heard: list[bytes] = []

    def close(self) -> None:
        """Leave at once."""
        self.context.destroy(linger=0)

    async def speak(self, ctrl_port: int, handoff: str) -> None:
        """A few messages about this handoff: forged, early, late, twice, of no meaning."""
        dealer = self.context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{ctrl_port}")
        try:
            for data in self._words(handoff):
                await dealer.send(data)
                await asyncio.sleep(self.rng.random() * 0.01)
            await asyncio.sleep(0.02)
        finally:
            dealer.close()

    def _words(self, handoff: str) -> list[bytes]:
        rng, planes = self.rng, ((0, 12),)
        messages: list[FromPrefill] = [
            Hello(instance="rogue", fingerprint=MARK),
            Withdraw(handoff=handoff, rank=0, reason="forged"),
            *(Done(handoff=handoff, rank=0, generation=g, start=rng.choice([0, 40])) for g in range(1, 40)),
            Offer(handoff=handoff, rank=rng.randrange(2), round=rng.randrange(3), tokens=40, planes=planes),
            Offer(handoff=f"rogue-{rng.random()}", rank=0, round=0, tokens=40, planes=planes),
        ]
        if rng.random() < 0.5:
            messages = messages[:1] + rng.sample(messages[1:], 20)
        words = [encode(message) for message in messages]
        broken = bytearray(rng.choice(words))
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        return [*words, bytes(broken), rng.randbytes(rng.randrange(200)), words[-1]]

    async def knock(self, transport: str, data_port: int) -> None:
        """A connection to the data port: silent, noisy, or with a key that was never given."""
        sock = begin_connect("127.0.0.1", data_port, here=transport == "shm")
        await asyncio.sleep(0.01)
        if not connected(sock):
            sock.close()  # the node is being restarted
            return
        _, writer = await asyncio.open_connection(sock=sock)
        kind = self.rng.randrange(4)
        attach = ATTACH.pack(ATTACH_MAGIC, self.rng.randrange(1, 60), secrets.token_bytes(16))
        if kind == 1:
            writer.write(self.rng.randbytes(300))
        elif kind == 2:
            writer.write(attach + bytes(HEADER.size) * 5)
        elif kind == 3:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await asyncio.sleep(0.05)
        writer.close()
