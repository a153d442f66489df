"""`speedtier plan simulate`: how long a step takes on a machine, and what it is spent on."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.plan.config import SimulateConfig
from deploy.plan.files import write
from deploy.plan.step import step_of
from persistent_engine.simulate import Result, bounds_of, kernels_of, program_of, result_of, run
from speedtier.errors import ConfigError

__all__ = ["simulate"]

CAUSES = {
    "memory": "memory at full rate",
    "lanes": "memory, too few lanes to fill it",
    "cache": "on-chip cache",
    "arithmetic": "arithmetic",
    "link": "links between devices",
    "selection": "choosing the largest, as measured",
    "latency": "first byte of a task",
    "shared": "others on the same memory",
    "launch": "starting and draining kernels",
    "signal": "signals",
    "hop": "hops between devices",
    "wait": "waits",
    "gate": "between steps",
}


def _where(title: str, seconds: dict[str, float], whole: float) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    for column in ("µs", "share"):
        table.add_column(column, justify="right")
    for what, took in seconds.items():
        if took >= 0.001 * whole:
            table.add_row(CAUSES.get(what, what), f"{took * 1e6:.1f}", f"{took / whole:.0%}")
    return table


def _workers(result: Result) -> Table:
    table = Table(title="workers", title_justify="left")
    for column in ("worker", "device", "busy", "waiting", "idle"):
        table.add_column(column, justify="right")
    for worker in result.workers:
        shares = (worker.busy_s, worker.waiting_s, worker.idle_s)
        table.add_row(
            str(worker.worker), str(worker.device), *(f"{part / (sum(shares) or 1.0):.0%}" for part in shares)
        )
    return table


def simulate(config: SimulateConfig) -> None:
    """Simulate, print tables, write JSON. Raises: SpeedtierError."""
    most = 1 + config.draft_depth
    if config.acceptance > most:
        raise ConfigError(
            f"acceptance is {config.acceptance:g}; a step of draft depth {config.draft_depth} gives {most}"
        )
    step = step_of(config)
    program = program_of(step.plan, step.costs, step.machine, step.load)
    result, bounds = result_of(run(program, config.epochs)), bounds_of(program)
    kernels = {
        launch: run(kernels_of(step.plan, step.costs, step.machine, step.load, launch), config.epochs).step_s
        for launch in ("graph", "host")
    }
    rate = config.acceptance / result.step_s
    figures: dict[str, Any] = {
        "tokens_per_s_user": rate,
        "tokens_per_s": rate * config.batch,
        **msgspec.to_builtins(result),
        "bounds": msgspec.to_builtins(bounds),
        "kernel_by_kernel_step_s": kernels,
    }
    report = {"name": "simulate", "machine": step.machine.name, "step": msgspec.to_builtins(config), "figures": figures}
    if config.json:
        write(config.json, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    console = Console()
    console.print(
        f"{step.plan.manifest.model} on {step.machine.name}, {config.context} tokens of state, batch {config.batch}:"
        f" {result.step_s * 1e6:.1f} µs a step, {rate:.1f} tokens/s for each user",
        highlight=False,
    )
    console.print(_where("the critical path by cause", result.path, result.step_s))
    console.print(_where("the critical path by operator", result.path_operators, result.step_s))
    console.print(_workers(result))
    console.print(
        f"{result.memory_bytes / 1e9:.2f} GB a step, {result.memory_share:.0%} of what the memory gives;"
        f" no plan can beat {bounds.memory_s * 1e6:.1f} µs (memory), this one not {bounds.most_s * 1e6:.1f} µs\n"
        f"kernel by kernel: {kernels['graph'] * 1e6:.1f} µs from a recorded graph,"
        f" {kernels['host'] * 1e6:.1f} µs launched one by one",
        highlight=False,
    )
