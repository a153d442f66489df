"""Prometheus metrics of a decode node."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from persistent_engine.server.session import Sessions

__all__ = ["Metrics"]

PREFIX = "speedtier_decode"
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class _Live(Collector):
    """Read at scrape time, from the objects that know."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        """Gauges of slots, counters of handoffs."""
        node, status = self._sessions.node, self._sessions.node.receiver.status()
        yield from self._of_handoffs(status)
        yield GaugeMetricFamily(f"{PREFIX}_slots", "Slots of this node", value=node.config.slots)
        yield GaugeMetricFamily(f"{PREFIX}_sessions", "Requests being served", value=len(self._sessions.open))
        yield GaugeMetricFamily(f"{PREFIX}_healthy", "1 while the engine works", value=float(not node.engine.failure))

    def _of_handoffs(self, status: dict[str, Any]) -> Iterable[Metric]:
        """What `Receiver.status` says."""
        messages = status.get("messages", {})
        refused = {**messages.get("refused_by_code", {}), "malformed": messages.get("malformed", 0)}
        for name, about, label, values in (
            ("handoffs", "Handoffs by their end", "end", status["ended"]),
            ("refused_messages", "Messages of prefill nodes that were refused, by code", "code", refused),
        ):
            counter = CounterMetricFamily(f"{PREFIX}_{name}", about, labels=[label])
            for value, count in values.items():
                counter.add_metric([value], count)
            yield counter
        for name, about in (
            ("landed_bytes", "State bytes received"),
            ("resident_hits", "Handoffs of which some tokens' state was here already"),
            ("held_tokens", "Prompt tokens whose state was here already"),
        ):
            yield CounterMetricFamily(f"{PREFIX}_{name}", about, value=status.get(name, 0))
        resident = sum(status.get("resident", {}).values())
        for name, about, value in (
            ("slots_held", "Slots in use", len(status["slots_held"])),
            ("slots_quarantined", "Slots whose writer is not known to have stopped", status.get("quarantined", 0)),
            ("resident_tokens", "Tokens whose state is kept in free slots", resident),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", about, value=value)
        if commits := status.get("commit_seconds"):
            yield HistogramMetricFamily(
                f"{PREFIX}_commit_seconds",
                "From the first offer to the commit",
                buckets=commits["buckets"],
                sum_value=commits["sum"],
            )


class Metrics:
    """Counters that sessions update, and the text of a scrape."""

    def __init__(self, sessions: Sessions) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Live(sessions))
        self.requests = Counter(f"{PREFIX}_requests", "Requests by their end", ["end"], registry=self._registry)
        self.tokens = Counter(f"{PREFIX}_tokens", "Tokens decoded", registry=self._registry)
        self.wait = Histogram(
            f"{PREFIX}_state_wait_seconds", "Wait for state", buckets=BUCKETS, registry=self._registry
        )
        self.decode = Histogram(f"{PREFIX}_seconds", "Time in the engine", buckets=BUCKETS, registry=self._registry)

    def text(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)
