"""vLLM's statistics of handoffs, on its own classes."""

import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from tilert_connector.course import Record

pytestmark = pytest.mark.slow  # importing vLLM takes seconds


@pytest.fixture(scope="module")
def stats() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tilert_connector import stats
    return stats


def record(end: str = "committed", sent: int = 100, early: int = 90) -> Record:
    return Record(
        handoff="h",
        request="r",
        end=end,
        reason="",
        tokens=8,
        held=0,
        sent=sent,
        early=early,
        transport="tcp",
        whole_s=2.0,
        after_s=0.5,
    )


def test_a_handoff_of_two_ranks_counts_once_with_the_bytes_of_both(stats: Any) -> None:
    one = stats.TileRTStats.of([record(), record("failed", 10, 0)], first_rank=True)
    other = stats.TileRTStats.of([record(sent=50, early=50)], first_rank=False)
    assert not one.is_empty() and not other.is_empty() and stats.TileRTStats().is_empty()
    whole = one.aggregate(other).aggregate(stats.TileRTStats.refused(2))
    assert whole.data["ends"] == {"committed": 1, "failed": 1, "refused": 2}
    assert (whole.data["sent"], whole.data["early"], whole.data["overlap"]) == (160, 140, [0.9])
    again = stats.TileRTStats(pickle.loads(pickle.dumps(whole.to_dict())))
    assert again.reduce() == {
        "Handoffs committed": 1,
        "Handoffs failed": 1,
        "Handoffs refused": 2,
        "MB sent": 0.0,
        "Avg commit (ms)": 2000.0,
        "Avg commit after prefill (ms)": 500.0,
        "Sent before prefill ended (%)": 87.5,
    }


def test_aggregation_does_not_share_lists(stats: Any) -> None:
    one, other = stats.TileRTStats.of([record()], True), stats.TileRTStats.of([record()], True)
    one.aggregate(other)
    other.aggregate(one)
    assert len(one.data["whole_s"]) == 2 and len(other.data["whole_s"]) == 3


def test_prometheus_gets_what_was_collected(stats: Any) -> None:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

    registry = CollectorRegistry()

    def made(kind: Any) -> Any:
        return lambda **fields: kind(**fields, registry=registry)

    types = {kind: made(kind) for kind in (Counter, Gauge, Histogram)}
    metrics = stats.TileRTPromMetrics(
        SimpleNamespace(kv_transfer_config=None), types, ["model", "engine"], {0: ["m", "0"]}
    )
    metrics.observe(stats.TileRTStats.of([record(), record("failed")], True).to_dict())
    text = generate_latest(registry).decode()
    assert 'vllm:tilert_handoffs_total{end="committed",engine="0",model="m"} 1.0' in text
    assert 'vllm:tilert_handoffs_total{end="refused",engine="0",model="m"} 0.0' in text
    assert 'vllm:tilert_sent_bytes_total{engine="0",model="m"} 200.0' in text
    assert 'vllm:tilert_commit_seconds_sum{engine="0",model="m"} 2.0' in text
    assert 'vllm:tilert_overlap_share_bucket{engine="0",le="0.9",model="m"} 1.0' in text
