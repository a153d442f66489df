"""What vLLM's own /metrics and log say about handoffs: `KVConnectorStats` and Prometheus metrics.

Invariants: where nothing was handed off nothing is made, sent or counted; a handoff of several tensor parallel ranks
counts once, as rank 0 saw it, and its bytes are those of all ranks.
Hooks as of vllm/distributed/kv_transfer/kv_connector/v1/metrics.py, vLLM 0.32.
"""

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Histogram
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from tilert_connector.course import Record

__all__ = ["TileRTPromMetrics", "TileRTStats"]

ENDS = ("committed", "failed", "cancelled", "refused")
TIMES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class TileRTStats(KVConnectorStats):
    """`data` (plain, it crosses processes): ends: count by end; sent, early: bytes, see `Record`; whole_s, after_s,
    overlap: one value for each committed handoff."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data=data or {})
        if not data:
            self.reset()

    @classmethod
    def of(cls, records: Sequence[Record], first_rank: bool) -> "TileRTStats":
        """Of one worker's handoffs. first_rank: whether it counts them, and not only their bytes."""
        stats = cls()
        data = stats.data
        for record in records:
            data["sent"] += record.sent
            data["early"] += record.early
            if not first_rank:
                continue
            data["ends"][record.end] = data["ends"].get(record.end, 0) + 1
            if record.end == "committed":
                data["whole_s"].append(record.whole_s)
                data["after_s"].append(max(0.0, record.after_s))
                if record.sent:
                    data["overlap"].append(record.early / record.sent)
        return stats

    @classmethod
    def refused(cls, count: int) -> "TileRTStats":
        """Of claims that the scheduler side did not accept."""
        stats = cls()
        stats.data["ends"]["refused"] = count
        return stats

    def reset(self) -> None:
        """Nothing happened."""
        self.data: dict[str, Any] = {"ends": {}, "sent": 0, "early": 0, "whole_s": [], "after_s": [], "overlap": []}

    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not self.data["ends"] and not self.data["sent"]

    def aggregate(self, other: KVConnectorStats) -> "TileRTStats":
        """Add another worker's, or a later step's."""
        mine, theirs = self.data, other.data
        for end, count in theirs["ends"].items():
            mine["ends"][end] = mine["ends"].get(end, 0) + count
        for name in ("sent", "early"):
            mine[name] += theirs[name]
        for name in ("whole_s", "after_s", "overlap"):
            mine[name] = [*mine[name], *theirs[name]]
        return self

    def reduce(self) -> dict[str, int | float]:
        """For vLLM's periodic log line."""
        data = self.data
        told: dict[str, int | float] = {f"Handoffs {end}": count for end, count in sorted(data["ends"].items())}
        told["MB sent"] = round(data["sent"] / 2**20, 3)
        if data["whole_s"]:
            told["Avg commit (ms)"] = round(1e3 * sum(data["whole_s"]) / len(data["whole_s"]), 1)
            told["Avg commit after prefill (ms)"] = round(1e3 * sum(data["after_s"]) / len(data["after_s"]), 1)
        if data["sent"]:
            told["Sent before prefill ended (%)"] = round(100 * data["early"] / data["sent"], 1)
        return told


class TileRTPromMetrics(KVConnectorPromMetrics):
    """Metrics with vLLM's own labels, so that they stand beside its others."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        counter, histogram = metric_types[Counter], metric_types[Histogram]
        self._handoffs = counter(
            name="vllm:tilert_handoffs",
            documentation="Handoffs to decode nodes by their end.",
            labelnames=[*labelnames, "end"],
        )
        self._counters = {
            name: counter(name=f"vllm:tilert_{name}_bytes", documentation=text, labelnames=labelnames)
            for name, text in (
                ("sent", "Attention state that decode nodes confirmed, in bytes."),
                ("early", "Those of the sent bytes that were confirmed when the prompt's prefill ended."),
            )
        }
        self._histograms = {
            name: histogram(name=f"vllm:tilert_{long}", documentation=text, buckets=buckets, labelnames=labelnames)
            for name, long, text, buckets in (
                ("whole_s", "commit_seconds", "From a request's first step to the commit.", TIMES),
                ("after_s", "commit_after_prefill_seconds", "From the end of prefill to the commit.", TIMES),
                (
                    "overlap",
                    "overlap_share",
                    "Share of its bytes that was confirmed when prefill ended.",
                    SHARES,
                ),
            )
        }
        for values in per_engine_labelvalues.values():
            for end in ENDS:
                self._handoffs.labels(*values, end)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Take what `TileRTStats.to_dict` gave."""
        values = self.per_engine_labelvalues[engine_idx]
        for end, count in transfer_stats_data["ends"].items():
            self._handoffs.labels(*values, end).inc(count)
        for name, metric in self._counters.items():
            metric.labels(*values).inc(transfer_stats_data[name])
        for name, metric in self._histograms.items():
            for value in transfer_stats_data[name]:
                metric.labels(*values).observe(value)
