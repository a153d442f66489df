"""Paired bursts of general traffic at two servers, with the connector and without it.

The two alternate and change who is first, so that both see the same noise; what counts is the median of the pairs'
ratios. `ratio.throughput`: with the connector to without. `ratio.cpu`: processor time without it to with it, which
other work on the machine disturbs less.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deploy.bench.connector.config import ConnectorBenchConfig
from deploy.bench.connector.server import Server
from deploy.bench.machine import machine
from deploy.checkpoints import ensure
from deploy.processes import Stack
from persistent_engine.models import read_facts

__all__ = ["connector"]

WARM_UP = 3
Pair = dict[str, tuple[float, float]]


def connector(config: ConnectorBenchConfig) -> None:
    """Measure, print a table, write JSON. Raises: SpeedtierError."""
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        pairs, blocks = asyncio.run(_measure(config, Path(directory)))
    report = _report(config, pairs, blocks)
    table = Table(title=f"general traffic, {config.pairs} pairs of bursts, {config.model}")
    for column in ("vLLM", "tokens/s", "CPU s a burst", "KV blocks"):
        table.add_column(column, justify="left" if column == "vLLM" else "right")
    for name, figures in (("with the connector", report["figures"]), ("without", report["against"]["vllm"])):
        table.add_row(name, f"{figures['tokens_per_s']:.0f}", f"{figures['cpu_s']:.3f}", str(figures["blocks"]))
    console.print(table)
    ratio = report["ratio"]
    console.print(
        f"throughput with the connector: {ratio['throughput']:.1%} of that without, by CPU {ratio['cpu']:.1%}"
    )
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def _report(config: ConnectorBenchConfig, pairs: list[Pair], blocks: dict[str, int]) -> dict[str, Any]:
    def figures(name: str) -> dict[str, Any]:
        wall, cpu = (median(pair[name][index] for pair in pairs) for index in (0, 1))
        return {"tokens_per_s": config.requests * config.tokens / wall, "cpu_s": cpu, "blocks": blocks[name]}

    return {
        "name": "connector",
        "machine": machine(),
        "figures": {**figures("with"), "pairs": config.pairs, "model": config.model},
        "against": {"vllm": figures("without")},
        "ratio": {
            "throughput": median(pair["without"][0] / pair["with"][0] for pair in pairs),
            "cpu": median(pair["without"][1] / pair["with"][1] for pair in pairs),
        },
    }


async def _measure(config: ConnectorBenchConfig, directory: Path) -> tuple[list[Pair], dict[str, int]]:
    """Seconds by clock and by processor of each burst, by server; and each server's count of cache blocks."""
    model = ensure(config.model)
    source, vocabulary = random.Random(0), read_facts(model).vocabulary
    pairs: list[Pair] = []
    async with Stack(directory, Console(stderr=True)) as running, aiohttp.ClientSession() as http:
        servers = {"with": Server(http, model, connector=True), "without": Server(http, model, connector=False)}
        await running.start([server.part for server in servers.values()])
        rounds = range(config.pairs + WARM_UP)
        for number in track(rounds, "measuring", console=Console(stderr=True), transient=True):
            prompts = [[source.randrange(10, vocabulary) for _ in range(config.prompt)] for _ in range(config.requests)]
            pair: Pair = {}
            for name in sorted(servers, reverse=bool(number % 2)):
                start, used = time.perf_counter(), servers[name].cpu_s()
                await asyncio.gather(*(servers[name].complete(prompt, config.tokens) for prompt in prompts))
                pair[name] = time.perf_counter() - start, servers[name].cpu_s() - used
            if number >= WARM_UP:
                pairs.append(pair)
        blocks = {name: await server.blocks() for name, server in servers.items()}
    return pairs, blocks
