"""The decode node's half of the measurement, in a process of its own: every sink over the same slots, and a plain
socket that receives in place.

Invariant: it does nothing but answer; the near half alone decides what is measured when.
"""

import asyncio
import contextlib
import secrets
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any

from deploy.bench.handoff.load import LAYOUT, TOKENS
from speedtier.errors import ConfigError
from tilert_connector.transport import Grant, Report, Sink, SlotPages, open_sink

__all__ = ["run"]

SLOTS = 2


def run(pipe: Connection, transports: tuple[str, ...]) -> None:
    """Serve until the near half hangs up."""
    asyncio.run(_serve(pipe, transports))


async def _serve(pipe: Connection, transports: tuple[str, ...]) -> None:
    slots = [SlotPages(LAYOUT.slot_bytes(TOKENS)) for _ in range(SLOTS)]
    sinks: dict[str, Sink] = {}
    missing: dict[str, str] = {}
    for name in transports:
        try:
            sinks[name] = open_sink(name, LAYOUT, slots, TOKENS, "127.0.0.1")
            await sinks[name].start()
        except ConfigError as error:
            sinks.pop(name, None)
            missing[name] = str(error)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(
        target=_receive, args=(listener, [memoryview(slot.array.data) for slot in slots]), daemon=True
    ).start()
    pipe.send(({name: sink.describe() for name, sink in sinks.items()}, missing, listener.getsockname()[1]))
    generation = 0
    try:
        while True:
            name, tokens = await asyncio.to_thread(pipe.recv)
            generation += 1
            await _grant(pipe, sinks[name], generation, tokens)
    except EOFError:
        pass
    finally:
        for sink in sinks.values():
            await sink.close()
        listener.close()


async def _grant(pipe: Connection, sink: Sink, generation: int, tokens: int) -> None:
    reports = asyncio.Queue[Report]()
    grant = Grant(
        handoff=f"bench-{generation}",
        rank=0,
        generation=generation,
        key=secrets.token_bytes(16),
        slot=generation % SLOTS,
        tokens=tokens,
        planes=((0, len(LAYOUT.planes)),),
    )
    sink.admit(grant, reports.put_nowait)
    pipe.send(grant)
    report: Any = await reports.get()
    pipe.send(report)


def _receive(listener: socket.socket, slots: list[memoryview]) -> None:
    """Each message: its size as 8 bytes, then that many bytes, in place; answered with one byte."""
    with contextlib.suppress(OSError):
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count = 0
        while head := sock.recv(8, socket.MSG_WAITALL):
            room = slots[count % len(slots)][: int.from_bytes(head)]
            count += 1
            while room:
                room = room[sock.recv_into(room, len(room), socket.MSG_WAITALL) :]
            sock.sendall(b"!")
