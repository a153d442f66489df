"""Prometheus metrics of a decode node."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
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
        yield GaugeMetricFamily(f"{PREFIX}_slots", "Slots of this node", value=node.config.slots)
        yield GaugeMetricFamily(f"{PREFIX}_sessions", "Requests being served", value=len(self._sessions.open))
        yield GaugeMetricFamily(f"{PREFIX}_healthy", "1 while the engine works", value=float(not node.engine.failure))
        handoffs = CounterMetricFamily(f"{PREFIX}_handoffs", "Handoffs by their end", labels=["end"])
        for end, count in status["ended"].items():
            handoffs.add_metric([end], count)
        yield handoffs
        yield CounterMetricFamily(f"{PREFIX}_landed_bytes", "State bytes received", value=status["landed_bytes"])


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
