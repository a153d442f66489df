"""What a prefill node counts and logs of its handoffs."""

import logging

import pytest

from tests.tilert_connector.pair import pair
from tilert_connector.config import ConnectorConfig
from tilert_connector.course import Course
from tilert_connector.logs import printable, share_handlers
from tilert_connector.tracker import Chunk, Step


def test_bytes_count_as_early_when_they_were_confirmed_before_the_end_of_prefill() -> None:
    now = 0.0
    course = Course(clock=lambda: now)
    course.begin("tcp")
    for size in (10, 20, 30):
        course.posted(size)
    course.confirmed(2)
    now = 2.0
    course.computed()
    course.confirmed(3)
    now = 2.5
    record = course.ended("h", "r", "committed", "", 8, 0)
    assert (record.sent, record.early, record.whole_s, record.after_s) == (60, 30, 2.5, 0.5)


def test_an_earlier_rounds_bytes_and_times_are_void() -> None:
    course = Course(clock=lambda: 1.0)
    course.begin("tcp")
    course.posted(10)
    course.confirmed(1)
    course.computed()
    course.revoked()
    course.begin("shm")
    course.posted(7)
    course.confirmed(1)
    record = course.ended("h", "r", "cancelled", "why", 8, 0)
    assert (record.sent, record.early, record.after_s, record.transport) == (7, 7, -1.0, "shm")


def test_a_commit_before_the_last_step_is_over_comes_at_the_end_of_prefill() -> None:
    course = Course(clock=lambda: 1.0)
    course.begin("tcp")
    course.posted(10)
    course.confirmed(1)
    record = course.ended("h", "r", "committed", "", 8, 0)
    assert (record.sent, record.early, record.after_s) == (10, 10, 0.0)


async def test_each_end_makes_one_record_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tilert_connector")
    async with pair() as both:
        (sender,) = both.senders
        both.prefill("a", 40, [1, 2, 3])
        held = await both.receiver.committed("h-a", 10)
        await both.reported("a")
        both.receiver.release(held)
        opening = both.opening("b", 40)
        both.step(Step(openings=(opening,), chunks=(Chunk(request="b", blocks=(4,), available=16),)))
        both.finish("b", completed=False)
        await both.reported("b")
        committed, cancelled = sender.take_records()
        assert sender.take_records() == []
    assert (committed.handoff, committed.end, committed.tokens) == ("h-a", "committed", 40)
    assert committed.sent == both.model.layout.slot_bytes(40) and committed.transport == "tcp"
    assert 0 <= committed.after_s <= committed.whole_s
    assert (cancelled.request, cancelled.end, cancelled.after_s) == ("b", "cancelled", -1.0)
    assert "aborted on the prefill node" in cancelled.reason
    lines = [one.getMessage() for one in caplog.records if one.name == "tilert_connector.lane"]
    assert [line.split()[:3] for line in lines] == [
        ["handoff=h-a", "request=a", "end=committed"],
        ["handoff=h-b", "request=b", "end=cancelled"],
    ]
    assert f" bytes={committed.sent} " in lines[0] and " transport=tcp " in lines[0]


async def test_a_failure_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with pair(sender=ConnectorConfig(networks=("10.0.0.0/8",))) as both:
        both.prefill("a", 40, [1, 2, 3])
        await both.reported("a")
        (record,) = both.senders[0].take_records()
    assert record.end == "failed" and "outside the networks" in record.reason
    (line,) = [one for one in caplog.records if one.name == "tilert_connector.lane"]
    assert line.levelno == logging.WARNING and "end=failed" in line.getMessage() and "networks" in line.getMessage()


def test_lines_go_where_the_other_loggers_lines_go_unless_somebody_set_them_up() -> None:
    host, guest, own = (logging.getLogger(name) for name in ("host", "guest", "own"))
    share_handlers("guest", "host")
    assert guest.handlers == [] and guest.propagate, "the host has no handlers: nothing to share"
    handler, other = logging.NullHandler(), logging.NullHandler()
    host.addHandler(handler)
    host.setLevel(logging.INFO)
    host.propagate = False
    own.addHandler(other)
    for _ in range(2):
        share_handlers("guest", "host")
        share_handlers("own", "host")
    assert guest.handlers == [handler] and not guest.propagate
    assert logging.getLogger("guest.part").isEnabledFor(logging.INFO)
    assert own.handlers == [other]


def test_what_a_peer_says_stays_in_its_line() -> None:
    assert printable("a b é") == "a b é"
    assert printable("a\nhandoff=x\x1b[2J") == "a\\nhandoff=x\\x1b[2J"
