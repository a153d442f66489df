"""Taking a slot's memory away from its writers, and what that costs whom."""

import asyncio
import mmap
import os
import socket

import numpy as np
import pytest

from tests.tilert_connector.transport.bench import LAYOUT, bench
from tilert_connector.transport import Grant, ShmSink, SlotPages
from tilert_connector.transport.frame import ATTACH, ATTACH_MAGIC
from tilert_connector.transport.sockets import begin_connect


def mapped(pages: SlotPages) -> np.ndarray:  # type: ignore[type-arg]
    _, descriptor = pages.share()
    try:
        return np.frombuffer(mmap.mmap(descriptor, pages.size), np.uint8)
    finally:
        os.close(descriptor)


@pytest.mark.contract("H4")
def test_renewed_pages_are_out_of_reach_of_everything_that_knew_them() -> None:
    pages = SlotPages(100_000)
    array, file = pages.array, mapped(pages)
    first, address = pages.alias()
    alias = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 100_000).from_address(address))
    file[5], alias[6] = 1, 2
    assert (array[5], array[6]) == (1, 2)
    pages.renew()
    assert not array.any()
    file[7], alias[8] = 3, 4
    assert not array.any()
    second, fresh = pages.alias()
    assert fresh != address and second != first
    mapped(pages)[9] = 5
    assert array[9] == 5 and array.sum() == 5


def test_pages_give_their_descriptors_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    pages = [SlotPages(10_000) for _ in range(5)]
    for one in pages:
        one.renew()
    assert len(os.listdir("/proc/self/fd")) == before + 5
    del one, pages
    assert len(os.listdir("/proc/self/fd")) == before


async def attach(sink: ShmSink, grant: Grant) -> socket.socket:
    sock = begin_connect("", sink.describe().port, here=True)
    await asyncio.get_running_loop().sock_sendall(sock, ATTACH.pack(ATTACH_MAGIC, grant.generation, grant.key))
    assert await asyncio.get_running_loop().sock_recv(sock, 4096)
    return sock


@pytest.mark.contract("H4")
async def test_a_writer_that_leaves_without_a_word_loses_the_pages_and_one_that_says_bye_does_not() -> None:
    async with bench("shm") as one:
        one.slots[0][:] = 0xAB
        polite = one.writer(one.grant(1))
        await one.drive(polite, polite.room)
        polite.close()
        assert not (await one.reported()).landed
        assert (one.slots[0] == 0xAB).all()
        assert isinstance(one.sink, ShmSink)
        (await attach(one.sink, one.grant(2))).close()
        assert not (await one.reported()).landed
        assert not one.slots[0].any()


@pytest.mark.contract("H2", "H4")
@pytest.mark.parametrize("when", ["landed", "writing"])
async def test_pages_that_are_taken_take_what_other_ranks_brought(when: str) -> None:
    async with bench("shm") as one:
        silent = await attach(one.sink, one.grant(1, planes=((0, 1),)))  # type: ignore[arg-type]
        rest = ((1, len(LAYOUT.planes)),)
        writer = one.writer(one.grant(2, planes=rest))
        await one.send(writer, one.frames(0, 40 if when == "landed" else 16, planes=rest))
        if when == "landed":
            assert (await one.reported()).landed
        silent.close()
        reports = [await one.reported(), await one.reported()]
        assert {report.generation for report in reports} == {1, 2}
        assert not any(report.landed for report in reports)
        assert "the slot's memory was replaced" in " ".join(report.reason for report in reports)
        writer.close()
