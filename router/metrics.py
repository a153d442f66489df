"""Prometheus metrics of the router.

Invariant: labels have bounded values: nothing that a client writes becomes one.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.fields import NEUTRAL
from router.fleet import Fleet
from router.record import Record

__all__ = ["Metrics"]

PREFIX = "speedtier_router"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_NAMED = frozenset(NEUTRAL) | {
    "messages",
    "model",
    "prompt",
    "reasoning_parser",
    "response_format",
    "structured_outputs",
    "tools",
    "logit_bias",
    "suffix",
    "prompt_logprobs",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "temperature",
    "ignore_eos",
    "stop_token_ids",
}


class _Slots(Collector):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{PREFIX}_waiting", "Requests that wait for a decode slot", value=self._fleet.gate.waiting
        )
        slots = GaugeMetricFamily(f"{PREFIX}_slots", "Slots of a decode node", labels=["node"])
        used = GaugeMetricFamily(f"{PREFIX}_slots_in_use", "Slots that hold a request", labels=["node"])
        for node in self._fleet.nodes:
            slots.add_metric([node.name], node.capabilities.slots if node.capabilities else 0)
            used.add_metric([node.name], node.in_flight)
        yield slots
        yield used


class Metrics:
    """The router's own registry."""

    def __init__(self, fleet: Fleet) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Slots(fleet))
        self._requests = self._counter("requests", "Requests by end", "traffic_class", "endpoint", "status")
        self._fallbacks = self._counter("fallbacks", "Requests sent to the native pool", "field")
        self._tokens = self._counter("tokens", "Tokens of the speed tier", "kind")
        self._phases = self._histogram("phase_seconds", "Phases of a speed tier request", "phase")
        self._first = self._histogram("first_token_seconds", "Arrival to first token", "traffic_class")
        self._total = self._histogram("request_seconds", "Arrival to end", "traffic_class")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}_total", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, registry=self._registry, buckets=SECONDS)

    def count(self, record: Record) -> None:
        """Add a request that has ended."""
        self._requests.labels(record.traffic_class, record.endpoint, str(record.status)).inc()
        if record.fallback:
            self._fallbacks.labels(record.fallback if record.fallback in _NAMED else "other").inc()
        self._tokens.labels("prompt").inc(record.prompt_tokens or 0)
        self._tokens.labels("completion").inc(record.completion_tokens or 0)
        for phase, seconds in record.phases.items():
            self._phases.labels(phase).observe(seconds)
        if record.first_token_s is not None:
            self._first.labels(record.traffic_class).observe(record.first_token_s)
        self._total.labels(record.traffic_class).observe(record.total_s)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
