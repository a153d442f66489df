"""The command: runs each measurement, prints its table, writes one JSON file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.bench.handoff.config import HandoffBenchConfig
from deploy.bench.handoff.overlap import overlap
from deploy.bench.handoff.part import Part
from deploy.bench.handoff.rates import rates
from deploy.bench.machine import machine

__all__ = ["MEASUREMENTS", "Measurement", "Part", "handoff"]

Measurement = Callable[[HandoffBenchConfig], Part]
MEASUREMENTS: tuple[Measurement, ...] = (rates, overlap)


def handoff(config: HandoffBenchConfig) -> None:
    """Measure, print tables, write JSON. Raises: SpeedtierError."""
    console = Console()
    figures: dict[str, Any] = {}
    against: dict[str, Any] = {}
    ratio: dict[str, float] = {}
    for measure in MEASUREMENTS:
        part = measure(config)
        _print(part, console)
        figures, against, ratio = figures | part.figures, against | part.against, ratio | part.ratio
    report = {"name": "handoff", "machine": machine(), "figures": figures, "against": against, "ratio": ratio}
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def _print(part: Part, console: Console) -> None:
    table = Table(title=part.title)
    for index, column in enumerate(part.columns):
        table.add_column(column, justify="right" if index else "left")
    for row in part.rows:
        table.add_row(*row)
    console.print(table)
    for note in part.notes:
        console.print(note)
