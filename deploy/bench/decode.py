"""`speedtier bench decode`: tokens a second of the engine and of others, on the same weights in one run.

Rounds are interleaved and medians taken, since other work on a machine comes and goes; the ratio is of one
run.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from deploy.bench.bandwidth import read_bandwidth
from deploy.bench.config import OPPONENTS, DecodeBenchConfig
from deploy.bench.contender import Contender
from deploy.bench.machine import machine
from deploy.checkpoints import NAMES, ensure
from deploy.opponents import Opponent
from persistent_engine.models import read_facts
from speedtier.errors import ConfigError

__all__ = ["decode"]


def _opponents(against: str) -> list[str]:
    names = [name.strip() for name in against.split(",") if name.strip()]
    for name in names:
        if name not in OPPONENTS:
            raise ConfigError(f"against is {name!r}; choose from {', '.join(OPPONENTS)}")
    return names


def _agreement(ours: list[int], theirs: list[int]) -> int:
    """Leading tokens that are the same."""
    pairs = zip(ours, theirs, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs)))


def _measure(config: DecodeBenchConfig, model: Path, dtype: str, console: Console) -> dict[str, Any]:
    names, threads = _opponents(config.against), config.threads or len(os.sched_getaffinity(0))
    room = config.context + config.tokens + 8
    seconds: dict[str, list[float]] = {name: [] for name in ("engine", *names)}
    agreement: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress(console=console, transient=True, disable=not console.is_terminal))
        task = bar.add_task("loading", total=1 + len(names) * (config.rounds + 1) + config.rounds)
        opponents = {
            name: stack.enter_context(Opponent(f"deploy.opponents.{name}", model, dtype, threads)) for name in names
        }
        prompt = np.random.default_rng(0).integers(10, read_facts(model).vocabulary, config.context).tolist()
        for opponent in opponents.values():
            opponent.generate(prompt, config.tokens)
            bar.advance(task)
        contender = Contender(model, dtype, config.workers, room, lambda done, total: None)
        stack.callback(contender.close)
        first = contender.fill(prompt)
        bar.update(task, description="measuring")
        for _ in range(config.rounds):
            tokens, took = contender.run(config.context, first, config.tokens)
            seconds["engine"].append(took / (config.tokens - 1))
            bar.advance(task)
            for name, opponent in opponents.items():
                answer = opponent.generate(prompt, config.tokens)
                seconds[name].append(answer.seconds / (config.tokens - 1))
                agreement[name] = _agreement([first, *tokens], answer.tokens)
                bar.advance(task)
        bandwidth = read_bandwidth(contender.workers)
        read = contender.bytes_per_token(config.context + config.tokens // 2)
    rate = {name: 1 / float(np.median(times)) for name, times in seconds.items()}
    engine = rate.pop("engine")
    return {
        "name": "decode",
        "machine": machine(),
        "figures": {
            "tokens_per_s": engine,
            "us_per_token": 1e6 / engine,
            "workers": contender.workers,
            "opponent_threads": threads,
            "bytes_per_token": read,
            "read_bandwidth": bandwidth,
            "agreement": agreement,
            "context": config.context,
            "tokens": config.tokens,
            "dtype": dtype,
            "model": config.model,
        },
        "against": {name: {"tokens_per_s": value} for name, value in rate.items()},
        "ratio": {**{name: engine / value for name, value in rate.items()}, "roofline": read * engine / bandwidth},
    }


def _print(report: dict[str, Any], console: Console) -> None:
    figures, table = report["figures"], Table(title=f"decode, one request, {report['figures']['model']}")
    for column in ("what", "tokens/s", "us/token", "engine is faster by", "same leading tokens"):
        table.add_column(column, justify="left" if column == "what" else "right")
    table.add_row("persistent engine", f"{figures['tokens_per_s']:.0f}", f"{figures['us_per_token']:.1f}", "", "")
    for name, against in report["against"].items():
        value, same = against["tokens_per_s"], f"{figures['agreement'][name]} of {figures['tokens']}"
        table.add_row(name, f"{value:.0f}", f"{1e6 / value:.1f}", f"{report['ratio'][name]:.1f}x", same)
    console.print(table)
    console.print(
        f"{figures['bytes_per_token'] / 1e6:.2f} MB a token at {figures['read_bandwidth'] / 1e9:.1f} GB/s read by"
        f" {figures['workers']} worker(s): {report['ratio']['roofline']:.0%} of the memory roofline"
        " (above 100 %: the caches hold the weights)"
    )


def decode(config: DecodeBenchConfig) -> None:
    """Measure, print a table, write JSON. Raises: SpeedtierError."""
    console = Console()
    model = ensure(config.model) if config.model in NAMES else Path(config.model)
    dtype = read_facts(model).dtype if config.dtype == "auto" else config.dtype
    report = _measure(config, model, dtype, console)
    _print(report, console)
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
