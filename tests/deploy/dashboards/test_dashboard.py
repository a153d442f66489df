"""The dashboard asks for metrics that the router has, by labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from prometheus_client import parser

from router.config import DecodeNodeConfig, RouterConfig
from router.metrics import Metrics
from router.record import Record
from router.server import running

FILE = Path(__file__).resolve().parents[3] / "deploy" / "dashboards" / "router.json"


def expressions() -> Iterator[str]:
    for panel in json.loads(FILE.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


async def labels() -> dict[str, set[str]]:
    """Names of all samples that a router shows after one request, with their labels."""
    config = RouterConfig(port=0, native=("http://127.0.0.1:9",), decode=(DecodeNodeConfig(url="http://127.0.0.1:9"),))
    async with running(config) as url, aiohttp.ClientSession() as session:
        async with session.post(url + "/v1/completions", json={"prompt": "x"}) as reply:
            assert reply.status == 502
        async with session.get(url + "/metrics") as reply:
            families = list(parser.text_string_to_metric_families(await reply.text()))
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


async def test_every_expression_names_what_there_is() -> None:
    known = await labels() | counted()
    names = {name for text in expressions() for name in re.findall(r"\b(?:speedtier_router|process)_\w+", text)}
    assert len(names) > 12 and names <= known.keys(), names - known.keys()
    for text in expressions():
        near = [known[name] for name in re.findall(r"\bspeedtier_router_\w+", text)]
        asked = {each.strip() for group in re.findall(r"by \(([^)]*)\)", text) for each in group.split(",")}
        asked |= set(re.findall(r"(\w+)(?:!=|=)\"", text))
        for one in near:
            assert asked <= one | {"le"}, (text, asked - one)


def counted() -> dict[str, set[str]]:
    """What only a speed tier request brings."""
    record = Record("/", traffic_class="speed", fallback="length", retries=1, repairs=1, status=429)
    record.phases["queue"] = record.first_token_s = 0.1
    record.last_token_s, record.delivered = 1.0, 3
    metrics = Metrics()
    metrics.count(record)
    families = parser.text_string_to_metric_families(metrics.text().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}
