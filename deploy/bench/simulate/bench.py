"""`speedtier bench simulate`: decode speed on a machine that is not here, next to what others published.

Invariant: the report holds every point, missed or not, with its error; no constant is taken from what it is held to.
"""

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from deploy.bench.simulate.config import SimulateBenchConfig
from deploy.bench.simulate.picture import bars, curves
from deploy.bench.simulate.points import COSTS, Point, Points
from deploy.bench.simulate.published import CONTEXTS, PUBLISHED
from deploy.plan.files import write
from deploy.plan.show import WIDE
from deploy.plan.simulate import CAUSES
from deploy.plan.target import Batch, Target, compile_for, facts_for, machine_of
from persistent_engine.plan import Plan

__all__ = ["simulate"]

BATCHES: tuple[Batch, ...] = (1, 2, 4, 8)
BATCH_CONTEXT = "32k"
"""Where the batches are compared: the middle of the points that are published."""


def _plans(config: SimulateBenchConfig) -> Points:
    """Plans by bucket: up to what sparse attention reads at once, where nothing has to be chosen, and the rest."""
    indexer = facts_for(config.model).indexer
    longest = max(CONTEXTS.values()) + config.output + config.draft_depth + 1
    buckets = (indexer.top_k, longest) if indexer is not None else (longest,)

    def compiled(context: int, batch: Batch, depth: int) -> Plan:
        return compile_for(Target(config.model, config.device, context, batch, depth))

    return Points(compiled, machine_of(config.device), buckets)


def _points(config: SimulateBenchConfig, points: Points, console: Console) -> dict[str, dict[str, Point]]:
    """By kind (`no_mtp`, `mtp`) and key: contexts at batch 1, and `batch N`."""
    kinds = {"no_mtp": (0, 1.0), "mtp": (config.draft_depth, config.acceptance)}
    half = config.output // 2
    found: dict[str, dict[str, Point]] = {kind: {} for kind in kinds}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulating", total=2 * (len(CONTEXTS) + len(BATCHES) - 1))
        for kind, (depth, committed) in kinds.items():
            for key, tokens in CONTEXTS.items():
                found[kind][key] = points.point(tokens + half, depth, committed)
                bar.advance(task)
            for batch in BATCHES[1:]:
                found[kind][f"batch {batch}"] = points.point(CONTEXTS[BATCH_CONTEXT] + half, depth, committed, batch)
                bar.advance(task)
    return found


def _errors(rates: dict[str, float], published: dict[str, float]) -> dict[str, float]:
    return {key: rates[key] / value - 1 for key, value in published.items() if key in rates}


def _report(
    config: SimulateBenchConfig, found: dict[str, dict[str, Point]], doubled: dict[str, dict[str, float]]
) -> dict[str, Any]:
    rates = {kind: {key: found[kind][key].rate for key in CONTEXTS} for kind in found}
    kernels = {
        launch: {kind: {key: found[kind][key].kernel_rate(launch) for key in CONTEXTS} for kind in found}
        for launch in ("graph", "host")
    }
    batches = {
        kind: {
            str(batch): {
                "tokens_per_s_user": point.rate,
                "tokens_per_s": point.rate * batch,
                "kernel_by_kernel_tokens_per_s_user": point.kernel_rate("graph"),
            }
            for batch in BATCHES
            for point in [found[kind][BATCH_CONTEXT if batch == 1 else f"batch {batch}"]]
        }
        for kind in found
    }
    paths = {kind: {key: found[kind][key].result.path for key in CONTEXTS} for kind in found}
    steps = {kind: {key: found[kind][key].result.step_s for key in CONTEXTS} for kind in found}
    errors = {kind: _errors(rates[kind], PUBLISHED[kind]) for kind in rates}
    errors["conventional"] = _errors(kernels["graph"]["no_mtp"], PUBLISHED["conventional"])
    errors["conventional_mtp"] = _errors(kernels["graph"]["mtp"], PUBLISHED["conventional"])
    return {
        "name": "simulate",
        "machine": {"simulated": config.device, "model": config.model},
        "figures": {
            **rates,
            "kernel_by_kernel": kernels,
            "batch": batches,
            "step_s": steps,
            "critical_path_s": paths,
            "kernel_by_kernel_path_s": {key: found["no_mtp"][key].kernels["graph"].path for key in CONTEXTS},
            "step_longer_when_doubled": doubled,
            "bound_s": {kind: {key: found[kind][key].bound_s for key in CONTEXTS} for kind in found},
        },
        "against": PUBLISHED,
        "ratio": {"error": errors},
    }


def _print(report: dict[str, Any], console: Console) -> None:
    figures, published = report["figures"], report["against"]
    what = f"{report['machine']['model']} on {report['machine']['simulated']}, batch 1, tokens/s for the user"
    table = Table(title=f"{what} (simulated)", title_justify="left")
    table.add_column("context")
    for column in ("plain", "published", "error", "drafted", "published", "error", "kernels", "kernels, drafted"):
        table.add_column(column, justify="right")
    for key in CONTEXTS:
        cells = []
        for kind in ("no_mtp", "mtp"):
            held = published[kind].get(key)
            error = "" if held is None else f"{report['ratio']['error'][kind][key]:+.0%}"
            cells += [f"{figures[kind][key]:.0f}", "" if held is None else f"{held:.0f}", error]
        graph = figures["kernel_by_kernel"]["graph"]
        table.add_row(key, *cells, f"{graph['no_mtp'][key]:.0f}", f"{graph['mtp'][key]:.0f}")
    console.print(table)
    costs = Table(title="how much longer a plain step takes when one cost is doubled", title_justify="left")
    costs.add_column("cost")
    doubled = figures["step_longer_when_doubled"]
    for key in doubled:
        costs.add_column(key, justify="right")
    for name in COSTS:
        costs.add_row(name, *(f"{longer[name]:+.1%}" for longer in doubled.values()))
    console.print(costs)
    best = published["conventional"]["1k"]
    for kind, name in (("conventional", "without"), ("conventional_mtp", "with")):
        error = report["ratio"]["error"][kind]["1k"]
        console.print(
            f"kernel by kernel {name} drafts at 1k: {error:+.0%} of the best published, {best}", highlight=False
        )


def _draw(config: SimulateBenchConfig, report: dict[str, Any], found: dict[str, dict[str, Point]]) -> None:
    names = {"no_mtp": "without drafts", "mtp": f"draft depth {config.draft_depth}"}
    lines = {}
    for kind, name in names.items():
        by_batch = report["figures"]["batch"][kind]
        for title, field in (("plan", "tokens_per_s_user"), ("kernels", "kernel_by_kernel_tokens_per_s_user")):
            lines[f"{title}, {name}"] = [
                (row[field], row[field] * int(batch), f"batch {batch}") for batch, row in by_batch.items()
            ]
    title = f"{config.model} on {config.device} at {BATCH_CONTEXT} of context, simulated"
    picture = curves(title, "tokens/s for each user", "tokens/s of the machine", lines)
    write(str(Path(config.pictures) / "simulation-batch.svg"), picture.encode())
    rows: dict[str, dict[str, float]] = {}
    for key in ("1k", "32k", "128k"):
        point = found["no_mtp"][key]
        for name, result in (("plan", point.result), ("kernels, recorded", point.kernels["graph"])):
            rows[f"{key}, {name}"] = {CAUSES[cause]: 1e6 * seconds for cause, seconds in result.path.items()}
    picture = bars(f"{config.model} on {config.device}, batch 1: what a step's critical path is made of", "µs", rows)
    write(str(Path(config.pictures) / "simulation-causes.svg"), picture.encode())


def simulate(config: SimulateBenchConfig) -> None:
    """Simulate all points, print a table, write JSON and pictures. Raises: SpeedtierError."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    points = _plans(config)
    found = _points(config, points, console)
    doubled = {key: points.doubled(CONTEXTS[key] + config.output // 2) for key in ("1k", "32k")}
    report = _report(config, found, doubled)
    _print(report, console)
    if config.pictures:
        _draw(config, report, found)
    if config.json:
        write(config.json, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
