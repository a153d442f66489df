"""What is so now, read when Prometheus asks: queues, slots, open requests, servers.

Invariant: a server that an operator removes is gone from the next scrape.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.fleet import Fleet
from router.native.pool import Pool
from router.record import Record

__all__ = ["PREFIX", "Gauges"]

PREFIX = "speedtier_router"


class Gauges(Collector):
    """``pools``: by kind, ``prefill`` and ``native``. ``open_requests``: see ``Ledger.open``."""

    def __init__(self, fleet: Fleet, pools: Mapping[str, Pool], open_requests: Callable[[], list[Record]]) -> None:
        self._fleet = fleet
        self._pools = pools
        self._open = open_requests

    def collect(self) -> Iterator[Metric]:
        waiting = _gauge("waiting", "Requests that wait for a decode slot", "traffic_class")
        for queue in self._fleet.gate.queues.values():
            waiting.add_metric([queue.name], len(queue.waiting))
        yield waiting
        serving = _gauge("open_requests", "Requests that have not ended", "traffic_class")
        for name, count in Counter(record.traffic_class for record in self._open()).items():
            serving.add_metric([name], count)
        yield serving
        yield from self._nodes()
        yield from self._servers()

    def _nodes(self) -> Iterator[Metric]:
        slots = _gauge("slots", "Slots of a decode node", "node")
        used = _gauge("slots_in_use", "Slots that hold a request of this router", "node")
        for node in self._fleet.nodes:
            slots.add_metric([node.name], node.capabilities.slots if node.capabilities else 0)
            used.add_metric([node.name], node.in_flight)
        yield slots
        yield used

    def _servers(self) -> Iterator[Metric]:
        up = _gauge("server_up", "1 when the last request reached the server", "kind", "server")
        draining = _gauge("server_draining", "1 when it gets no new requests", "kind", "server")
        failures = _gauge("server_failures", "Failures to reach it in a row", "kind", "server")
        load = _gauge("server_requests", "Requests of this router that it holds", "kind", "server")
        for node in self._fleet.nodes:
            labels = ["decode", node.name]
            up.add_metric(labels, int(node.known or (node.draining and node.health.healthy)))
            draining.add_metric(labels, int(node.draining))
            failures.add_metric(labels, node.health.failures)
            load.add_metric(labels, node.in_flight)
        for kind, pool in self._pools.items():
            for server in pool.servers:
                labels = [kind, server.name]
                up.add_metric(labels, int(server.healthy))
                draining.add_metric(labels, int(server.draining))
                failures.add_metric(labels, max(part.failures for part in server.parts))
                load.add_metric(labels, server.load)
        yield from (up, draining, failures, load)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
