"""The command: rounds of every measurement, a table for people, one JSON file."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.bench.machine import machine
from deploy.bench.router.bench import FLOOD, Bench, Flow
from deploy.bench.router.config import RouterBenchConfig
from deploy.bench.router.crowd import CALLERS, beside_a_crowd
from deploy.bench.router.first_token import added_ms
from deploy.bench.router.stub import SLOTS
from speedtier.errors import ConfigError

__all__ = ["measure", "router"]

Cell = tuple[int, int]
PACED_RATES = (500, 2000, 8000)
"""Events a second of one native stream; a fast engine sends a few hundred."""
NOTE = (
    "No other router is measured: TileRT's own is not to be had here. Goals: 2 ms to the first token, 50 us of "
    "processor time for a token at the median, native streams at 95% of a direct connection."
)


def router(config: RouterBenchConfig) -> None:
    """Measure, print, write JSON. Raises: SpeedtierError."""
    report = measure(config)
    _print(report, Console())
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def measure(config: RouterBenchConfig) -> dict[str, Any]:
    """The report.

    Raises:
        ConfigError: more streams than the stub has slots.
    """
    if max(config.streams) > SLOTS:
        raise ConfigError(f"streams = {max(config.streams)}: the stub decode node has {SLOTS} slots; take fewer")
    flows: dict[Cell, list[Flow]] = {}
    firsts: list[tuple[float, float, float]] = []
    relays: list[dict[str, float]] = []
    with Bench.running(config.prompt) as bench:
        for _ in range(config.rounds):
            for streams in config.streams:
                for rate in config.rates:
                    flow = asyncio.run(bench.flow(streams, rate, config.seconds))
                    flows.setdefault((streams, rate), []).append(flow)
            asyncio.run(bench.flow(1, 2000, 0.01))  # leaves the stub's rate high for what follows
            firsts.append(added_ms(bench.router, bench.prefill, config.requests // config.rounds + 1, config.prompt))
            relays.append(asyncio.run(_relays(bench, config.seconds)))
    alone: list[float] = []
    beside: list[float] = []
    with Bench.running(config.prompt, slots=1, queue_limit=CALLERS) as bench:
        for _ in range(config.rounds):
            for times, more in zip((alone, beside), asyncio.run(beside_a_crowd(bench, config.requests)), strict=True):
                times += more
    report = _report(flows, firsts, relays)
    general = {"alone": _tail(alone), "beside_a_crowd": _tail(beside)}
    report["figures"]["general_ms"] = general
    for name in ("p50", "p99"):
        report["ratio"][f"general_{name}"] = general["beside_a_crowd"][name] / general["alone"][name]
    return report


def _tail(times: Sequence[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(times), 3), "p99": round(statistics.quantiles(times, n=100)[98], 3)}


async def _relays(bench: Bench, seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for rate in PACED_RATES:
        count = max(10, int(rate * seconds))
        found[f"at_{rate}_direct"] = await bench.native(bench.prefill, count, rate)
        found[f"at_{rate}"] = await bench.native(bench.router, count, rate)
    found["flood_direct"] = await bench.native(bench.prefill, FLOOD, 0)
    found["flood"] = await bench.native(bench.router, FLOOD, 0)
    return found


def _report(
    flows: Mapping[Cell, Sequence[Flow]],
    firsts: Sequence[tuple[float, float, float]],
    relays: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    grid = [
        {
            "streams": streams,
            "tokens_per_s_per_stream": rate,
            "tokens_per_s": round(statistics.median(each.rate for each in found), 1),
            "cpu_us_per_token": round(statistics.median(each.cpu_us for each in found), 2),
            "cores": round(statistics.median(each.busy for each in found), 3),
        }
        for (streams, rate), found in flows.items()
    ]
    through, direct, added = (statistics.median(each[i] for each in firsts) for i in range(3))
    held = {
        f"at_{rate}": statistics.median(each[f"at_{rate}"] / each[f"at_{rate}_direct"] for each in relays)
        for rate in PACED_RATES
    }
    events = {name: statistics.median(each[name] for each in relays) for name in relays[0]}
    return {
        "name": "router",
        "machine": machine(),
        "figures": {
            "cpu_us_per_token": statistics.median(each["cpu_us_per_token"] for each in grid),
            "cpu_us_per_token_most": max(each["cpu_us_per_token"] for each in grid),
            "added_ttft_ms": round(added, 3),
            "ttft_ms": round(through, 3),
            "grid": grid,
            "native_events_per_s": {name: round(value, 1) for name, value in events.items()},
        },
        "against": {"stubs_ttft_ms": round(direct, 3)},
        "ratio": {
            "native_relay": min(held.values()),
            "native_relay_by_rate": held,
            "native_relay_unpaced": statistics.median(each["flood"] / each["flood_direct"] for each in relays),
        },
    }


def _print(report: Mapping[str, Any], console: Console) -> None:
    figures, ratio = report["figures"], report["ratio"]
    table = Table(title="Streams of the speed tier: what the router's process costs")
    for column in ("streams", "tokens/s each", "tokens/s in all", "CPU us a token", "cores"):
        table.add_column(column, justify="right")
    for row in figures["grid"]:
        table.add_row(*(f"{value:g}" for value in row.values()))
    console.print(table)
    console.print(f"CPU a token: {figures['cpu_us_per_token']:.1f} us at the median of these")
    console.print(
        f"Time to the first token: {figures['ttft_ms']:.2f} ms through the router, "
        f"{report['against']['stubs_ttft_ms']:.2f} ms from the stubs: {figures['added_ttft_ms']:.2f} ms added"
    )
    held = ", ".join(f"{ratio['native_relay_by_rate'][f'at_{rate}']:.1%} at {rate} events/s" for rate in PACED_RATES)
    console.print(
        f"A native stream against a direct connection: {held}; as fast as three processes can on this machine's cores, "
        f"against two, {ratio['native_relay_unpaced']:.1%}"
    )
    alone, beside = figures["general_ms"]["alone"], figures["general_ms"]["beside_a_crowd"]
    console.print(
        f"A general request: p50 {alone['p50']:.2f} ms, p99 {alone['p99']:.2f} ms; beside {CALLERS} callers who wait "
        f"for one slot p50 {beside['p50']:.2f} ms, p99 {beside['p99']:.2f} ms"
    )
    console.print(NOTE)
