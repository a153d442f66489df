"""The decode node's HTTP over fakes: every end of a request, and that each frees the slot."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from deploy.checkpoints import ensure
from persistent_engine.models import read_facts
from persistent_engine.runtime import FakeEngine
from persistent_engine.server import DecodeConfig, DecodeNode, FakeReceiver, serving
from tilert_connector.layout.fingerprint import Fingerprint


class Node:
    """A node on a free port, and a client for it."""

    def __init__(self, receiver: FakeReceiver, engine: FakeEngine, http: aiohttp.ClientSession, url: str) -> None:
        self.receiver, self.engine, self.http, self.url = receiver, engine, http, url

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON (lines, when streamed)."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.http.post(self.url + path, data=data) as reply:
            raw = await reply.read()
            if reply.content_type == "application/x-ndjson":
                return reply.status, [msgspec.json.decode(line) for line in raw.splitlines()]
            return reply.status, msgspec.json.decode(raw)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text."""
        async with self.http.get(self.url + path) as reply:
            return reply.status, await reply.text()

    async def idle(self) -> None:
        """Wait until nothing is held (R5: within a second)."""
        async with asyncio.timeout(1):
            while (
                self.receiver.held
                or self.engine.busy
                or msgspec.json.decode((await self.get("/decode_status"))[1])["sessions"]
            ):
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def node(slots: int = 1, delay_s: float = 0.0, fail_after: int | None = None) -> AsyncIterator[Node]:
    facts = read_facts(ensure("tiny-gqa"))
    receiver, engine = FakeReceiver(slots), FakeEngine(delay_s, fail_after)
    config = DecodeConfig(model="x", port=0, slots=slots, max_tokens=64, state_wait_s=5)
    blank = {name: "" for name in Fingerprint.__struct_fields__}
    mark = Fingerprint(**{**blank, "protocol": 1, "block_size": 1})  # type: ignore[arg-type]
    made = DecodeNode(config, facts, receiver, engine, mark)
    async with serving(made) as port, aiohttp.ClientSession() as http:
        yield Node(receiver, engine, http, f"http://127.0.0.1:{port}")


def body(rid: str = "a", **more: Any) -> dict[str, Any]:
    return {"rid": rid, "first_token_id": 100, "max_tokens": 5, **more}


async def test_whole_reply_and_stream_say_the_same() -> None:
    async with node() as one:
        one.receiver.commit("a")
        status, reply = await one.post("/pd/decode", body())
        assert (status, reply["token_ids"], reply["seq_len"]) == (200, [101, 102, 103, 104, 105], 15)
        assert (reply["rid"], reply["finish_reason"], reply["stop_reason"]) == ("a", "length", None)
        assert set(reply["timing_ms"]) == {"wait", "decode", "total"}
        one.receiver.commit("b")
        status, lines = await one.post("/pd/decode", body("b", stream=True))
        assert [token for line in lines[:-1] for token in line["t"]] == reply["token_ids"]
        assert (lines[-1]["done"], lines[-1]["n"], lines[-1]["finish_reason"]) == (True, 5, "length")
        await one.idle()


async def test_stop_ids_and_eos_end_the_reply() -> None:
    async with node() as one:
        for rid, sampling, reason in [
            ("a", {"stop_token_ids": [103]}, 103),
            ("b", {"eos_token_ids": [103]}, None),
            ("c", {"stop_token_ids": [103], "eos_token_ids": [103], "ignore_eos": True}, 103),
        ]:
            one.receiver.commit(rid)
            _, reply = await one.post("/pd/decode", body(rid, sampling=sampling))
            assert (reply["token_ids"][-1], reply["finish_reason"], reply["stop_reason"]) == (103, "stop", reason)
        one.receiver.commit("d")
        _, reply = await one.post("/pd/decode", body("d", sampling={"eos_token_ids": [103], "ignore_eos": True}))
        assert reply["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        (b"{", 400, "/pd/decode"),
        (b"[]", 400, "object"),
        (b"[" * 100_000, 400, "/pd/decode"),
        ({"first_token_id": 1, "max_tokens": 1}, 400, "rid"),
        (body(rid=""), 400, "rid"),
        (body(max_tokens=0), 400, "max_tokens"),
        (body(max_tokens=-5), 400, "max_tokens"),
        (body(max_tokens=1.5), 400, "max_tokens"),
        (body(max_tokens=10**30), 400, "max_tokens"),
        (body(first_token_id=-1), 400, "first_token_id"),
        (body(first_token_id=10**6), 400, "first_token_id"),
        (body(first_token_id=10**40), 400, "first_token_id"),
        (body(colour="red"), 400, "colour"),
        (body(sampling={"temperature": -1}), 400, "temperature"),
        (body(sampling={"top_p": 0}), 400, "top_p"),
        (body(sampling={"top_k": -2}), 400, "top_k"),
        (body(sampling={"stop_token_ids": [2**63]}), 400, "stop_token_ids"),
        (body(sampling={"seed": 2**63}), 400, "seed"),
        (body(sampling={"mirostat": 2}), 400, "mirostat"),
        (body(sampling={"logit_bias": {"1": 2}}), 501, "logit_bias"),
        (body(sampling={"presence_penalty": 0.5}), 501, "presence_penalty"),
        (body(top_logprobs=3), 501, "top_logprobs"),
        (body(timeout_s=0), 400, "timeout_s"),
    ],
)
async def test_bad_input_is_named_and_costs_nothing(wrong: Any, status: int, said: str) -> None:
    async with node() as one:
        one.receiver.commit("a")
        got, reply = await one.post("/pd/decode", wrong)
        assert got == status
        assert said in reply["error"]["message"]
        assert set(reply["error"]) == {"message", "type", "code"}
        one.receiver.commit("good")
        assert (await one.post("/pd/decode", body("good")))[0] == 200
        await one.idle()


async def test_neutral_values_of_what_it_lacks_are_accepted() -> None:
    async with node() as one:
        one.receiver.commit("a")
        neutral = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "logit_bias": None, "min_tokens": 0}
        assert (await one.post("/pd/decode", body(sampling=neutral)))[0] == 200


async def test_a_reply_that_does_not_fit_is_refused_with_the_room() -> None:
    async with node() as one:
        one.receiver.commit("a", tokens=60)
        status, reply = await one.post("/pd/decode", body())
        assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
        assert "leave 4" in reply["error"]["message"]
        await one.idle()


@pytest.mark.contract("H5")
async def test_state_that_does_not_come_or_fails() -> None:
    async with node() as one:
        status, reply = await one.post("/pd/decode", body("late", timeout_s=0.05))
        assert (status, reply["error"]["code"], one.receiver.cancelled) == (504, "kv_transfer_timeout", ["late"])
        one.receiver.fail("bad", "the sender went away")
        status, reply = await one.post("/pd/decode", body("bad"))
        assert (status, reply["error"]["code"]) == (502, "kv_transfer_failed")
        assert "the sender went away" in reply["error"]["message"]
        await one.idle()


@pytest.mark.contract("R4")
async def test_no_more_states_than_slots_and_each_request_once() -> None:
    async with node(slots=2, delay_s=0.02) as one:
        for rid in "abc":
            one.receiver.commit(rid)
        running = [asyncio.create_task(one.post("/pd/decode", body(rid))) for rid in "abc"]
        await asyncio.sleep(0.03)
        assert len(one.receiver.held) == 2
        assert (await one.post("/pd/decode", body("a")))[0] == 409
        assert [reply["token_ids"] for _, reply in await asyncio.gather(*running)] == [[101, 102, 103, 104, 105]] * 3
        await one.idle()


@pytest.mark.contract("R4")
async def test_who_waits_for_state_keeps_nobody_out() -> None:
    """Two routers may ask in another order than their states come in."""
    async with node() as one:
        early = [asyncio.create_task(one.post("/pd/decode", body(f"early{turn}"))) for turn in range(5)]
        await asyncio.sleep(0.05)
        one.receiver.commit("late")
        assert (await one.post("/pd/decode", body("late")))[0] == 200
        for turn in range(5):
            one.receiver.commit(f"early{turn}")
        assert [status for status, _ in await asyncio.gather(*early)] == [200] * 5
        await one.idle()


@pytest.mark.contract("R2")
async def test_no_slot_in_time_is_busy_and_not_broken() -> None:
    async with node() as one:
        one.receiver.fail("a", "no slot was free in time (0.1 s)")
        status, reply = await one.post("/pd/decode", body("a"))
        assert (status, reply["error"]["code"]) == (429, "busy")


@pytest.mark.contract("E4")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("committed", [True, False])
async def test_cancel_ends_a_request_in_any_phase(committed: bool, stream: bool) -> None:
    async with node(delay_s=0.01) as one:
        if committed:
            one.receiver.commit("a")
        running = asyncio.create_task(one.post("/pd/decode", body(max_tokens=50, stream=stream)))
        await asyncio.sleep(0.1)
        assert await one.post("/pd/cancel", {"rid": "a"}) == (200, {"rid": "a", "cancelled": True})
        status, reply = await running
        if committed and stream:
            assert (status, reply[-1]["finish_reason"]) == (200, "cancelled")
            assert 0 < reply[-1]["n"] < 50
        else:
            assert (status, reply["error"]["code"]) == (499, "cancelled")
        await one.idle()
        one.receiver.commit("b")
        assert (await one.post("/pd/decode", body("b")))[0] == 200


async def test_cancel_of_nothing() -> None:
    async with node() as one:
        assert (await one.post("/pd/cancel", {"rid": "x"}))[0] == 200  # may still be offered: refused then
        assert (await one.post("/pd/cancel", {"rid": "x"}))[0] == 404
        for wrong in (b"{", {"rid": 5}, {}, []):
            assert (await one.post("/pd/cancel", wrong))[0] == 400


@pytest.mark.contract("R5")
@pytest.mark.parametrize("committed", [True, False])
async def test_a_client_that_leaves_frees_the_slot(committed: bool) -> None:
    async with node(delay_s=0.01) as one:
        if committed:
            one.receiver.commit("a")
        running = asyncio.create_task(one.post("/pd/decode", body(max_tokens=50, stream=True)))
        await asyncio.sleep(0.1)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await one.idle()
        assert committed or one.receiver.cancelled == ["a"]
        one.receiver.commit("b")
        assert (await one.post("/pd/decode", body("b")))[0] == 200


@pytest.mark.contract("R5")
async def test_clients_that_leave_at_any_moment_leave_nothing() -> None:
    """Moments around the answer's first byte too, where the stream has not begun."""
    async with node(delay_s=0.002) as one:
        for turn in range(60):
            rid = f"a{turn}"
            one.receiver.commit(rid)
            running = asyncio.create_task(one.post("/pd/decode", body(rid, max_tokens=50, stream=turn % 2 == 0)))
            await asyncio.sleep(turn * 0.0002)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await one.idle()
        one.receiver.commit("b")
        assert (await one.post("/pd/decode", body("b")))[0] == 200


async def test_cancel_answers_when_the_slot_is_free() -> None:
    async with node(delay_s=0.01) as one:
        for turn in range(10):
            one.receiver.commit(f"a{turn}")
            running = asyncio.create_task(one.post("/pd/decode", body(f"a{turn}", max_tokens=50, stream=True)))
            await asyncio.sleep(0.03)
            await one.post("/pd/cancel", {"rid": f"a{turn}"})
            assert not one.receiver.held
            assert not one.engine.busy
            await running


async def test_an_engine_that_fails_says_so_everywhere() -> None:
    async with node(fail_after=2) as one:
        assert (await one.get("/health"))[0] == 200
        one.receiver.commit("a")
        status, lines = await one.post("/pd/decode", body(stream=True))
        assert (status, lines[-1]["error"]["code"]) == (200, "engine_failed")
        assert "done" not in lines[-1]
        one.receiver.commit("b")
        assert (await one.post("/pd/decode", body("b")))[0] == 500
        assert (await one.get("/health"))[0] == 503
        await one.idle()


async def test_a_fault_of_ours_ends_the_stream_with_an_error_line() -> None:
    async with node() as one:
        one.engine.raises = RuntimeError("on cue")
        for stream in (True, False):
            one.receiver.commit(f"a{stream}")
            status, reply = await one.post("/pd/decode", body(f"a{stream}", stream=stream))
            error = reply[-1]["error"] if stream else reply["error"]
            assert (status, error["code"]) == (200 if stream else 500, "internal_error")
        await one.idle()
        one.engine.raises = None
        one.receiver.commit("b")
        assert (await one.post("/pd/decode", body("b")))[0] == 200


async def test_what_it_tells_about_itself() -> None:
    async with node(slots=2) as one:
        capabilities = msgspec.json.decode((await one.get("/capabilities"))[1])
        assert (capabilities["max_tokens"], capabilities["slots"], capabilities["transport"]) == (64, 2, "tcp")
        assert "temperature" in capabilities["sampling"]
        assert "weights" in capabilities["fingerprint"]
        one.receiver.commit("a")
        await one.post("/pd/decode", body())
        text = (await one.get("/metrics"))[1]
        assert 'speedtier_decode_requests_total{end="length"} 1.0' in text
        assert "speedtier_decode_tokens_total 5.0" in text
        assert "speedtier_decode_slots_held 0.0" in text and "speedtier_decode_slots_quarantined 0.0" in text
        assert 'speedtier_decode_refused_messages_total{code="ticket"} 2.0' in text
        assert "speedtier_decode_resident_tokens 7.0" in text
        assert 'speedtier_decode_commit_seconds_bucket{le="+Inf"} 1.0' in text
        status, text = await one.get("/nothing")
        assert (status, msgspec.json.decode(text)["error"]["code"]) == (404, "not_found")
        assert (await one.get("/pd/decode"))[0] == 405


@pytest.mark.contract("H12")
@pytest.mark.parametrize(("most", "kept"), [(1, [7]), (4, 4), (30, None)])
async def test_the_slot_is_given_back_with_the_tokens_whose_state_it_holds(most: int, kept: Any) -> None:
    """The first token and all decoded ones but the last; of a request that is cut off, what had come."""
    async with node(delay_s=0.01) as one:
        one.receiver.commit("r")
        body = {"rid": "r", "first_token_id": 7, "max_tokens": most}
        if kept is None:
            asking = asyncio.create_task(one.post("/pd/decode", body))
            await asyncio.sleep(0.1)
            await one.post("/pd/cancel", {"rid": "r"})
            await asking
            await one.idle()
            assert 0 < len(one.receiver.kept["r"]) < 30
            return
        _, reply = await one.post("/pd/decode", body)
        await one.idle()
        expected = [7, *reply["token_ids"][:-1]]
        assert one.receiver.kept["r"] == expected and len(expected) == (kept if isinstance(kept, int) else len(kept))
