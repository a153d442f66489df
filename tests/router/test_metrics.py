"""`/metrics`: what Prometheus' own parser and an operator make of it (R10)."""

import asyncio
import json
import time
from typing import Any

import pytest
from prometheus_client import parser

from router.fake import FakeDecode, FakePrefill
from router.record import Record, trace_id
from tests.router.stack import CHAT, Open, Stack

pytestmark = pytest.mark.contract("R10")


async def scrape(stack: Stack) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples; the text obeys the rules that promtool checks."""
    async with stack.session.get(stack.url + "/metrics") as reply:
        assert reply.content_type == "text/plain"
        text = await reply.text()
    samples = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.name.startswith(("speedtier_router_", "process_"))
        assert not family.name.endswith(("_ms", "_millis"))
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, "one value for each set of labels"
            samples[key] = sample.value
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created"))
    return samples


def value(samples: dict[Any, float], name: str, **labels: str) -> float | None:
    return samples.get((f"speedtier_router_{name}", tuple(sorted(labels.items()))))


def name_of(samples: dict[Any, float], kind: str) -> str:
    """The one server of a kind."""
    (name,) = {dict(labels)["server"] for name, labels in samples if ("kind", kind) in labels}
    return name


async def test_what_the_speed_tier_did_can_be_read(open_stack: Open) -> None:
    stack = await open_stack()
    await stack.whole(max_tokens=4)
    await stack.events(max_tokens=4, n=2)
    seen = await scrape(stack)
    assert value(seen, "requests_total", traffic_class="speed", endpoint=CHAT, status="200") == 2
    assert value(seen, "fallbacks_total", traffic_class="speed", reason="capability", field="n") == 1
    assert value(seen, "tokens_total", traffic_class="speed", kind="completion") == 4
    for phase in ("render", "queue", "prefill", "handoff", "first_step", "decode"):
        assert value(seen, "phase_seconds_count", traffic_class="speed", phase=phase) == 1, phase
    assert value(seen, "first_token_seconds_count", traffic_class="speed") == 2
    assert value(seen, "tokens_per_second_count", traffic_class="speed") == 1
    assert value(seen, "waiting", traffic_class="speed") == value(seen, "waiting", traffic_class="native") == 0
    node = name_of(seen, "decode")
    assert value(seen, "slots", node=node) == 1 and value(seen, "slots_in_use", node=node) == 0
    assert value(seen, "server_up", kind="decode", server=node) == 1
    assert value(seen, "server_up", kind="native", server=name_of(seen, "native")) == 1


def test_the_handoff_and_the_first_step_are_told_apart() -> None:
    record = Record("/")
    record.phases["handoff"] = 5.0
    record.handed(time.monotonic() - 2.0)
    assert record.phases["first_step"] >= 2.0 and sum(record.phases.values()) == pytest.approx(5.0)
    record.handed(time.monotonic() - 100.0)  # no more than there was
    assert record.phases["handoff"] == 0.0
    record.handed(None)  # another server went on, which has no handoff


async def test_a_queue_and_what_it_refuses_are_seen(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 400, pace_s=0.01)
    stack = await open_stack(nodes=[node], queue_limit=1, native=(), queue_wait_s=60)
    async with stack.ask(stream=True, max_tokens=400) as first:
        await first.content.readany()
        second = asyncio.create_task(stack.whole(max_tokens=2))
        async with asyncio.timeout(15):
            while value(seen := await scrape(stack), "waiting", traffic_class="speed") != 1:
                await asyncio.sleep(0.01)
        assert value(seen, "slots_in_use", node=name_of(seen, "decode")) == 1
        assert value(seen, "open_requests", traffic_class="speed") == 2
        async with stack.ask(stream=True) as third:
            assert third.status == 429
        first.close()
    await second
    assert value(await scrape(stack), "refusals_total", traffic_class="speed") == 1


async def test_a_clients_words_make_no_label(open_stack: Open) -> None:
    stack = await open_stack()
    async with stack.ask(**{"fox\nfield": 1}) as reply:
        assert reply.status == 200
    async with stack.ask(path="/v1/nope%0Afox") as reply:
        assert reply.status == 404
    for key in await scrape(stack):
        assert not any("fox" in text for _, text in key[1])


async def test_a_node_that_cannot_be_reached_is_seen(open_stack: Open, model_dir) -> None:
    stack = await open_stack(FakePrefill(model_dir), nodes=[FakeDecode(fault="die")])
    async with stack.ask(max_tokens=4) as reply:
        await reply.read()
    seen = await scrape(stack)
    assert (value(seen, "server_failures", kind="decode", server=name_of(seen, "decode")) or 0) >= 1


async def test_the_log_line_has_the_trace_and_the_phases(open_stack: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "router.access")
    stack = await open_stack()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"x-traffic-class": "speed", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    async with stack.ask(headers=headers, max_tokens=4) as reply:
        assert reply.status == 200
    (line,) = [json.loads(each.message) for each in caplog.records if each.name == "router.access"]
    assert line["trace_id"] == trace and line["class_from"] == "header"
    assert {
        "render_ms",
        "queue_ms",
        "prefill_ms",
        "handoff_ms",
        "first_step_ms",
        "first_token_ms",
        "tokens_per_s",
    } <= line.keys()
    # It exports no spans, so it is no parent of any: W3C's rule for who passes a trace on is to leave it as it is.
    sent = [seen["traceparent"] for seen in (*stack.prefill.headers, *stack.decode.headers) if "traceparent" in seen]
    assert sent and set(sent) == {headers["traceparent"]}


@pytest.mark.parametrize(
    "wrong", ["", "00-0-0-0", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"ff-{'a' * 32}-00f067aa0ba902b7-01", "x\ny"]
)
def test_what_is_no_trace_is_none(wrong: str) -> None:
    assert trace_id(wrong) == ""
