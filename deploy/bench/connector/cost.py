"""Bursts of general traffic at three servers: with the connector, with one that does nothing, without any.

They alternate and change who is first, so that all see the same noise; what counts is the median of the rounds'
ratios. `ratio.throughput`: with the connector to without. `ratio.cpu`: processor time without it to with it, which
other work on the machine disturbs less. `..._idle`: the same against the connector that does nothing, so what is ours
and not what vLLM does once any connector is loaded.
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
from deploy.bench.connector.server import Loaded, Server
from deploy.bench.connector.shape import shape_of
from deploy.bench.machine import machine
from deploy.processes import Stack

__all__ = ["connector"]

WARM_UP = 2
NAMES: tuple[Loaded, ...] = ("ours", "idle", "none")
TITLES = {"ours": "with the connector", "idle": "with one that does nothing", "none": "without"}
Round = dict[Loaded, tuple[float, float]]


def connector(config: ConnectorBenchConfig) -> None:
    """Measure, print a table, write JSON. Raises: SpeedtierError."""
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        rounds, blocks = asyncio.run(_measure(config, Path(directory)))
    report = _report(config, rounds, blocks)
    table = Table(title=f"general traffic, {config.rounds} rounds of bursts, {config.model}")
    for column in ("vLLM", "tokens/s", "CPU s a burst", "KV blocks"):
        table.add_column(column, justify="left" if column == "vLLM" else "right")
    for name, figures in (("ours", report["figures"]), *report["against"].items()):
        row = f"{figures['tokens_per_s']:.1f}", f"{figures['cpu_s']:.3f}", str(figures["blocks"])
        table.add_row(TITLES[name], *row)
    console.print(table)
    ratio = report["ratio"]
    console.print(
        f"throughput with the connector: {ratio['throughput']:.1%} of that without (by CPU {ratio['cpu']:.1%}), "
        f"{ratio['throughput_idle']:.1%} of that with one that does nothing (by CPU {ratio['cpu_idle']:.1%})"
    )
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def _report(config: ConnectorBenchConfig, rounds: list[Round], blocks: dict[Loaded, int]) -> dict[str, Any]:
    def figures(name: Loaded) -> dict[str, Any]:
        wall, cpu = (median(each[name][index] for each in rounds) for index in (0, 1))
        return {"tokens_per_s": config.requests * config.tokens / wall, "cpu_s": cpu, "blocks": blocks[name]}

    def ratio(name: Loaded, index: int) -> float:
        return median(each[name][index] / each["ours"][index] for each in rounds)

    return {
        "name": "connector",
        "machine": machine(),
        "figures": {**figures("ours"), "rounds": config.rounds, "model": config.model},
        "against": {"idle": figures("idle"), "none": figures("none")},
        "ratio": {
            "throughput": ratio("none", 0),
            "cpu": ratio("none", 1),
            "throughput_idle": ratio("idle", 0),
            "cpu_idle": ratio("idle", 1),
        },
    }


async def _measure(config: ConnectorBenchConfig, directory: Path) -> tuple[list[Round], dict[Loaded, int]]:
    """Seconds by clock and by processor of each burst, by server; and each server's count of cache blocks."""
    shape = shape_of(config.model, directory)
    source = random.Random(0)
    rounds: list[Round] = []
    async with Stack(directory, Console(stderr=True)) as running, aiohttp.ClientSession() as http:
        servers = {name: Server(http, name, shape) for name in NAMES}
        await running.start([server.part for server in servers.values()])
        numbers = range(config.rounds + WARM_UP)
        for number in track(numbers, "measuring", console=Console(stderr=True), transient=True):
            prompts = [
                [source.randrange(10, shape.vocabulary) for _ in range(config.prompt)] for _ in range(config.requests)
            ]
            each: Round = {}
            for place in range(len(NAMES)):
                name = NAMES[(number + place) % len(NAMES)]
                start, used = time.perf_counter(), servers[name].cpu_s()
                await asyncio.gather(*(servers[name].complete(prompt, config.tokens) for prompt in prompts))
                each[name] = time.perf_counter() - start, servers[name].cpu_s() - used
            if number >= WARM_UP:
                rounds.append(each)
        blocks = {name: await server.blocks() for name, server in servers.items()}
    return rounds, blocks
