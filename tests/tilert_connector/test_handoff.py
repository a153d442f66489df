"""Sender to receiver, byte for byte."""

import asyncio
import socket

import numpy as np
import pytest

from tests.tilert_connector.pair import CAPACITY, Pair, pair, until
from tilert_connector import HandoffFailed
from tilert_connector.tracker import Chunk, Step
from tilert_connector.transport.socket_sink import MAX_ATTACHING

LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200)


@pytest.mark.contract("H2", "H6", "H8")
@pytest.mark.parametrize("transport", ["tcp", "fake"])
@pytest.mark.parametrize(("family", "block_size"), [("mla", 16), ("gqa", 16), ("gqa", 64)])
async def test_every_length_arrives_byte_for_byte(family: str, block_size: int, transport: str) -> None:
    async with pair(family, transport, block_size=block_size) as both:
        for seed, tokens in enumerate(LENGTHS):
            both.slot(0)[:] = 0
            blocks = list(np.random.default_rng(seed).permutation(63)[: -(-tokens // block_size)])
            both.prefill(f"r{tokens}", tokens, [int(block) for block in blocks], seed)
            held = await both.receiver.committed(f"h-r{tokens}", 10)
            assert (held.slot, held.tokens) == (0, tokens)
            assert np.array_equal(both.slot(0), both.model.expected(tokens, CAPACITY, seed))
            await both.reported(f"r{tokens}")
            both.receiver.release(held)
        assert both.receiver.status()["ended"] == {"committed": len(LENGTHS), "failed": 0, "cancelled": 0}
        assert both.receiver.status()["slots_held"] == {}


@pytest.mark.contract("H2")
@pytest.mark.parametrize("family", ["mla", "gqa"])
async def test_chunks_travel_while_prefill_goes_on(family: str) -> None:
    async with pair(family) as both:
        blocks, landed = list(range(12)), []
        step = Step(openings=(both.opening("r", 100),))
        both.step(step)
        for first, last in ((0, 40), (40, 41), (41, 80), (80, 100)):
            new = blocks[-(-first // 16) : -(-last // 16)]
            chunk = Chunk(request="r", blocks=tuple(new), available=last)
            both.step(Step(chunks=(chunk,)), lambda first=first, last=last: both.model.prefill(blocks, first, last))
            if last == 80:
                await until(lambda: sent(both) == 80)
                landed.append(sent(both))
        both.finish("r")
        held = await both.receiver.committed("h-r", 10)
        assert landed == [80]
        assert np.array_equal(both.slot(0), both.model.expected(100, CAPACITY))
        both.receiver.release(held)


def sent(both: Pair) -> int:
    """Tokens that the lane has cut and posted."""
    outgoing = both.senders[0]._outgoing["r"]
    return min(outgoing.queued) if not outgoing.frames else 0


@pytest.mark.contract("H2", "H3")
@pytest.mark.parametrize("transport", ["tcp", "fake"])
@pytest.mark.parametrize("family", ["mla", "gqa"])
async def test_a_preempted_request_is_sent_again_from_its_first_token(family: str, transport: str) -> None:
    async with pair(family, transport) as both:
        first, second = list(range(5)), list(range(20, 27))
        opening, chunk = both.opening("r", 100), Chunk(request="r", blocks=tuple(first), available=80)
        both.step(Step(openings=(opening,), chunks=(chunk,)), lambda: both.model.prefill(first, 0, 80, seed=1))
        both.step(Step(preempted=("r",)), lambda: both.model.scribble(first))
        again = Chunk(request="r", blocks=tuple(second), available=100, restart=True)
        both.step(Step(chunks=(again,)), lambda: both.model.prefill(second, 0, 100, seed=2))
        both.finish("r")
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(100, CAPACITY, seed=2))
        await both.reported("r")
        both.receiver.release(held)


@pytest.mark.contract("H2", "H7")
async def test_tensor_parallel_ranks_bring_their_heads_into_one_slot() -> None:
    async with pair("gqa", ranks=2) as both:
        blocks = [3, 1, 2]
        both.prefill("r", 40, blocks)
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(40, CAPACITY))
        await both.reported("r")
        both.receiver.release(held)


@pytest.mark.contract("H2")
async def test_a_rank_with_nothing_to_bring_holds_no_blocks() -> None:
    async with pair("mla", ranks=2) as both:
        both.prefill("r", 40, [3, 1, 2])
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(40, CAPACITY))
        await both.reported("r")
        both.receiver.release(held)


@pytest.mark.contract("H4")
async def test_a_second_handoff_waits_for_the_slot() -> None:
    async with pair("gqa") as both:
        both.prefill("a", 40, [1, 2, 3], seed=1)
        held = await both.receiver.committed("h-a", 10)
        await both.reported("a")
        both.prefill("b", 33, [4, 5, 6], seed=2)
        await until(lambda: both.receiver.status()["open"].get("waiting") == 1)
        assert np.array_equal(both.slot(0), both.model.expected(40, CAPACITY, seed=1))
        both.slot(0)[:] = 0
        both.receiver.release(held)
        later = await both.receiver.committed("h-b", 10)
        assert later.generation > held.generation
        assert np.array_equal(both.slot(0), both.model.expected(33, CAPACITY, seed=2))
        await both.reported("b")
        both.receiver.release(held)  # late and of an old generation: nothing happens
        assert list(both.receiver.status()["slots_held"]) == ["0"]


async def test_two_slots_are_written_side_by_side() -> None:
    async with pair("gqa", slots=2) as both:
        both.prefill("a", 40, [1, 2, 3], seed=1)
        both.prefill("b", 41, [4, 5, 6], seed=2)
        for seed, (name, tokens) in enumerate((("h-a", 40), ("h-b", 41)), start=1):
            held = await both.receiver.committed(name, 10)
            assert np.array_equal(both.slot(held.slot), both.model.expected(tokens, CAPACITY, seed))


@pytest.mark.contract("H2", "H5")
async def test_a_prompt_longer_than_a_slot_fails_and_names_the_limit() -> None:
    async with pair("mla", block_size=16) as both:
        both.prefill("r", CAPACITY + 1, list(range(13)))
        with pytest.raises(HandoffFailed, match=f"201 tokens, this decode node holds at most {CAPACITY}"):
            await both.receiver.committed("h-r", 10)
        await both.reported("r")
        assert not both.slot(0).any()
        assert both.receiver.status()["slots_held"] == {}


@pytest.mark.contract("H5")
async def test_silent_connections_to_the_data_port_keep_no_writer_out() -> None:
    async with pair("gqa") as both:
        port = both.receiver.data_port
        silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(MAX_ATTACHING + 10)]
        try:
            both.prefill("r", 40, [3, 1, 2])
            held = await both.receiver.committed("h-r", 10)
            assert np.array_equal(both.slot(0), both.model.expected(40, CAPACITY))
            both.receiver.release(held)
        finally:
            for one in silent:
                one.close()


@pytest.mark.contract("H2", "H10")
async def test_layers_of_the_last_chunk_arrive_before_the_step_is_over() -> None:
    async with pair("gqa") as both:
        blocks, layers = list(range(7)), range(len(both.model.exporter.layers))
        chunk = Chunk(request="r", blocks=tuple(blocks), available=100)
        step = Step(openings=(both.opening("r", 100),), chunks=(chunk,))
        both.senders[0].begin(step)
        both.model.prefill(blocks, 0, 100)
        for layer in layers:
            both.senders[0].save(layer)
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(100, CAPACITY))
        both.senders[0].advance(step)
        both.finish("r")
        await both.reported("r")
        both.receiver.release(held)


@pytest.mark.contract("H2", "H6")
async def test_of_an_earlier_chunk_no_layer_leaves_before_its_step_is_over() -> None:
    async with pair("gqa") as both:
        blocks = list(range(7))
        chunk = Chunk(request="r", blocks=tuple(blocks[:3]), available=48)
        step = Step(openings=(both.opening("r", 100),), chunks=(chunk,))
        both.senders[0].begin(step)
        await until(lambda: both.receiver.status()["open"].get("writing") == 1)
        for layer in range(len(both.model.exporter.layers)):
            both.senders[0].save(layer)
        await asyncio.sleep(0.1)
        assert max(both.senders[0]._outgoing["r"].queued) == 0
        both.model.prefill(blocks, 0, 48)
        both.senders[0].advance(step)
        last = Chunk(request="r", blocks=tuple(blocks[3:]), available=100)
        both.step(Step(chunks=(last,)), lambda: both.model.prefill(blocks, 48, 100))
        both.finish("r")
        held = await both.receiver.committed("h-r", 10)
        assert np.array_equal(both.slot(0), both.model.expected(100, CAPACITY))
        await both.reported("r")
        both.receiver.release(held)
