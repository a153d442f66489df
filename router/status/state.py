"""What ``/status.json`` says.

Invariant: it is read from what the router holds anyway; nobody behind it is asked.
"""

import time
from collections import Counter

import msgspec

from router.admin import Entry, Roster
from router.config import TrafficClass
from router.gate import Gate
from router.ledger import Failure, Ledger
from router.record import Record
from speedtier import __version__

__all__ = ["ClassState", "RequestState", "Status", "state"]

SHOWN = 100
"""Requests that are listed; the oldest."""


class ClassState(msgspec.Struct, frozen=True, kw_only=True):
    """``waiting`` of at most ``limit`` requests stand in the queue; ``open`` are being served or wait."""

    name: str
    pool: str
    fallback: str
    waiting: int
    limit: int
    open: int


class RequestState(msgspec.Struct, frozen=True, kw_only=True):
    """An open request. ``tokens``: gone to the client so far; ``tokens_per_s``: since the first. Both are known of the
    speed tier alone: native replies are not looked into."""

    traffic_class: str
    served_by: str
    node: str
    age_s: float
    tokens: int
    tokens_per_s: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """``time``: seconds since 1970. ``tokens``: of the speed tier since the start; ``open``: open requests, of which
    ``requests`` lists the oldest."""

    version: str
    time: float
    up_s: float
    tokens: int
    open: int
    classes: list[ClassState]
    nodes: list[Entry]
    requests: list[RequestState]
    errors: list[Failure]


def state(classes: list[TrafficClass], gate: Gate, roster: Roster, ledger: Ledger) -> Status:
    """What is so now."""
    records = ledger.open
    counts = Counter(record.traffic_class for record in records)
    return Status(
        version=__version__,
        time=time.time(),
        up_s=round(ledger.age_s, 3),
        tokens=ledger.delivered,
        open=len(records),
        classes=[
            ClassState(
                name=each.name,
                pool=each.pool,
                fallback=each.fallback if each.pool == "speed" else "none",
                waiting=len(gate.queues[each.name].waiting),
                limit=gate.queues[each.name].limit,
                open=counts[each.name],
            )
            for each in classes
        ],
        nodes=roster.entries(),
        requests=[_request(each) for each in records[:SHOWN]],
        errors=list(ledger.failures)[::-1],
    )


def _request(record: Record) -> RequestState:
    rate = record.tokens_per_s
    return RequestState(
        traffic_class=record.traffic_class,
        served_by=record.served_by,
        node=record.node,
        age_s=round(record.age_s, 3),
        tokens=record.delivered,
        tokens_per_s=None if rate is None else round(rate, 1),
    )
