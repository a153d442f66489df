"""Prometheus metrics of the router.

Invariant: labels have bounded values: nothing that a client writes becomes one.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from router.fields.rules import EXECUTED, NATIVE, NEUTRAL, PARSED, REFUSED
from router.gauges import PREFIX
from router.record import Record

__all__ = ["Metrics"]

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
RATES = (1, 2, 5, 10, 20, 50, 100, 150, 200, 300, 400, 500, 700, 1000, 1500, 2000, 5000)
FALLBACKS = {"length": "length", "wait": "wait", "health": "health", "endpoint": "endpoint"}
"""Why a request went to the native pool; any other value is a field that the speed tier cannot execute."""
FIELDS = frozenset((*EXECUTED, *PARSED, *NATIVE, *REFUSED, *NEUTRAL))


class Metrics:
    """The router's own registry, with the process's standard metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        by_class = "traffic_class"
        self._requests = self._counter("requests", "Requests by end", by_class, "endpoint", "status")
        self._fallbacks = self._counter("fallbacks", "Requests sent to the native pool", by_class, "reason", "field")
        self._refusals = self._counter("refusals", "Requests told to come back later (429)", by_class)
        self._retries = self._counter("retries", "Tries on another node before the first token", by_class)
        self._repairs = self._counter("repairs", "Replies that went on elsewhere after the first token", by_class)
        self._tokens = self._counter("tokens", "Tokens of the speed tier", by_class, "kind")
        self._phases = self._histogram("phase_seconds", "Phases of a speed tier request", SECONDS, by_class, "phase")
        self._first = self._histogram("first_token_seconds", "Arrival to first token", SECONDS, by_class)
        self._rates = self._histogram("tokens_per_second", "Tokens a second of one reply", RATES, by_class)
        self._total = self._histogram("request_seconds", "Arrival to end", SECONDS, by_class)

    def show(self, collector: Collector) -> None:
        """Have a collector's metrics shown too."""
        self._registry.register(collector)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}_total", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, registry=self._registry, buckets=buckets)

    def count(self, record: Record) -> None:
        """Add a request that has ended."""
        name = record.traffic_class
        self._requests.labels(name, record.endpoint, str(record.status)).inc()
        if record.fallback:
            reason = FALLBACKS.get(record.fallback, "capability")
            field = record.fallback if record.fallback in FIELDS else "other"
            self._fallbacks.labels(name, reason, field if reason == "capability" else "").inc()
        if record.status == 429:
            self._refusals.labels(name).inc()
        self._retries.labels(name).inc(record.retries)
        self._repairs.labels(name).inc(record.repairs)
        self._tokens.labels(name, "prompt").inc(record.prompt_tokens or 0)
        self._tokens.labels(name, "completion").inc(record.completion_tokens or 0)
        for phase, seconds in record.phases.items():
            self._phases.labels(name, phase).observe(seconds)
        if record.first_token_s is not None:
            self._first.labels(name).observe(record.first_token_s)
        if record.tokens_per_s is not None:
            self._rates.labels(name).observe(record.tokens_per_s)
        self._total.labels(name).observe(record.total_s)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
