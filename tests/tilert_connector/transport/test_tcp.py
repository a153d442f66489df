"""What only sockets can get wrong."""

import asyncio
import contextlib
import socket
import struct

import pytest

from speedtier.errors import ConfigError
from tests.tilert_connector.transport.bench import CAPACITY, LAYOUT, bench
from tilert_connector.errors import WireError
from tilert_connector.transport import Endpoint, Frame, TcpCarrier, TcpSink
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC, pack_header


async def connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def closed(sock: socket.socket) -> bool:
    """Whether the other end hangs up within 5 s."""
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), 5) == b""
    except ConnectionResetError:
        return True
    finally:
        sock.close()


@pytest.mark.contract("H3", "H9")
@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nhost: d.example\r\n\r\n", bytes(32), b"\xff" * 64])
async def test_strangers_are_hung_up_on(data: bytes) -> None:
    async with bench("tcp") as one:
        one.grant()
        sock = await connected(one.sink.describe().port)
        await asyncio.get_running_loop().sock_sendall(sock, data)
        assert await closed(sock)
        assert not one.slots[0].any() and not one.reports


@pytest.mark.contract("H5")
async def test_a_damaged_frame_is_never_confirmed() -> None:
    async with bench("tcp") as one:
        grant = one.grant()
        sock = await connected(one.sink.describe().port)
        (frame,) = one.frames(0, 16, limit=1 << 20)
        data = b"".join(one.pieces(frame))
        message = ATTACH.pack(ATTACH_MAGIC, 1, grant.key) + pack_header(0, 1, frame) + data
        await asyncio.get_running_loop().sock_sendall(sock, message + struct.pack("<Q", 1))
        assert await closed(sock)
        report = await one.reported()
        assert not report.landed and "checksum of frame 0" in report.reason and report.landed_bytes == 0


@pytest.mark.contract("H3")
async def test_a_frame_of_another_generation_ends_the_connection_unwritten() -> None:
    async with bench("tcp") as one:
        grant = one.grant()
        sock = await connected(one.sink.describe().port)
        (frame,) = one.frames(0, 16, limit=1 << 20)
        data = b"".join(one.pieces(frame))
        message = ATTACH.pack(ATTACH_MAGIC, 1, grant.key) + pack_header(0, 2, frame) + data
        await asyncio.get_running_loop().sock_sendall(sock, message)
        assert await closed(sock)
        assert "frame of generation 2, granted is 1" in (await one.reported()).reason
        assert not one.slots[0].any()


@pytest.mark.contract("H3")
async def test_a_grant_takes_one_connection() -> None:
    async with bench("tcp") as one:
        grant = one.grant()
        first = one.writer(grant)
        await one.send(first, one.frames(0, 16))
        assert await one.refused(one.writer(grant), one.frames(0, 16))
        await one.send(first, one.frames(16, 40))
        assert (await one.reported()).landed and one.landed(40).all()


@pytest.mark.contract("H4")
async def test_revoking_wakes_a_landing_that_waits_in_the_middle_of_a_frame() -> None:
    async with bench("tcp") as one:
        grant = one.grant()
        sock = await connected(one.sink.describe().port)
        frame = Frame(0, 1, 0, 32, 32 * 32)
        message = ATTACH.pack(ATTACH_MAGIC, 1, grant.key) + pack_header(0, 1, frame) + bytes(100)
        await asyncio.get_running_loop().sock_sendall(sock, message)
        await asyncio.sleep(0.1)
        assert await asyncio.wait_for(one.sink.revoke(1, 2), 3)
        assert await closed(sock)


@pytest.mark.contract("H5")
async def test_a_writer_that_never_connects_is_reported(mocker) -> None:  # type: ignore[no-untyped-def]
    mocker.patch("tilert_connector.transport.socket_sink.ATTACH_S", 0.1)
    async with bench("tcp") as one:
        one.grant()
        report = await one.reported()
        assert not report.landed and "did not connect to the data port within 0.1 s" in report.reason


@pytest.mark.contract("H5")
async def test_nobody_listening_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(WireError):
            writer = TcpCarrier().open(Endpoint(transport="tcp", host="127.0.0.1", port=port), 1, bytes(16))
            with contextlib.closing(writer):
                for _ in range(100):
                    writer.progress()
                    await asyncio.sleep(0.01)


async def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        slot = memoryview(bytearray(LAYOUT.slot_bytes(CAPACITY)))
        with pytest.raises(ConfigError, match=rf"data_port: cannot listen on 127\.0\.0\.1:{port}"):
            await TcpSink(LAYOUT, [slot], CAPACITY, "127.0.0.1", port).start()
