"""`speedtier plan roofline`: what a step must read and compute, and the limit of each machine."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from rich.console import Console
from rich.table import Table

from deploy.plan.files import write
from deploy.plan.target import facts_for
from persistent_engine.devices import DEVICES, device
from persistent_engine.manifest import Workload
from persistent_engine.models import ModelFacts
from persistent_engine.plan import Dtype
from persistent_engine.roofline import Need, needs, tokens_per_s

__all__ = ["RooflineConfig", "roofline", "roofline_report"]

DTYPES = {"mxfp8": Dtype.MXFP8, "fp8": Dtype.FP8, "nvfp4": Dtype.NVFP4, "bf16": Dtype.BF16}


class RooflineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode step of a model, without drafts."""

    model: Annotated[str, Meta(description="A published model such as glm-5.1, or a directory with a config.json.")]
    device: Annotated[str, Meta(description=f"The machine: {', '.join(DEVICES)}.")] = "8xH200"
    dtype: Annotated[Literal["mxfp8", "fp8", "nvfp4", "bf16"], Meta(description="Of all matrices.")] = "mxfp8"
    state: Annotated[Literal["bf16", "fp8"], Meta(description="Of attention state and index keys.")] = "bf16"
    context: Annotated[int, Meta(ge=1, description="Tokens of state, the new one included.")] = 1024
    batch: Annotated[int, Meta(ge=1, le=64, description="Requests decoded together.")] = 1
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""


def _total(by_operator: dict[str, Need]) -> Need:
    return sum(by_operator.values(), start=Need())


def _by_dtype(facts: ModelFacts, workload: Workload, name: str) -> dict[str, dict[str, float]]:
    """For each dtype of matrices: bits a value, gigabytes and limit of a step; `kept`: head and router in bfloat16."""
    sheet, found = device(name), {}
    for key, dtype in DTYPES.items():
        need = _total(needs(facts, dtype, workload))
        kept = _total(needs(facts, dtype, workload, kept_dtype=Dtype.BF16))
        found[key] = {
            "bits": dtype.bits,
            "gb_per_token": need.weight_bytes / 1e9 / workload.batch,
            "gb_per_token_kept": kept.weight_bytes / 1e9 / workload.batch,
            "tokens_per_s": tokens_per_s(need, dtype, sheet, workload, state=False),
        }
    return found


def roofline_report(config: RooflineConfig) -> dict[str, Any]:
    """The report. `tokens_per_s` is weights at the data sheet's rate, as such limits are commonly quoted; `with_state`
    adds what the context costs, and `attained` the rate that reading is measured to attain. Raises: SpeedtierError.
    """
    facts, dtype, sheet = facts_for(config.model), DTYPES[config.dtype], device(config.device)
    workload = Workload(config.context, config.batch)
    by_operator = needs(facts, dtype, workload, state_dtype=DTYPES[config.state])
    total = _total(by_operator)
    limit = tokens_per_s(total, dtype, sheet, workload)
    return {
        "name": "plan roofline",
        "machine": {"device": sheet.name, "bytes_per_s": sheet.datasheet_bytes_per_s},
        "figures": {
            "model": config.model,
            "dtype": config.dtype,
            "context": config.context,
            "batch": config.batch,
            "gb_per_token": total.weight_bytes / 1e9 / workload.batch,
            "state_gb_per_token": total.state_bytes / 1e9 / workload.batch,
            "gflop_per_token": total.flops / 1e9 / workload.batch,
            "tokens_per_s": tokens_per_s(total, dtype, sheet, workload, state=False),
            "tokens_per_s_with_state": limit,
            "tokens_per_s_attained": limit * sheet.figures.hbm_calibration.value,
            "operators": {name: msgspec.to_builtins(need) for name, need in by_operator.items()},
            "dtypes": _by_dtype(facts, workload, config.device),
        },
        "against": {},
        "ratio": {},
    }


def _operators(figures: dict[str, Any]) -> Table:
    table = Table(title=f"{figures['model']}, {figures['dtype']}, {figures['context']} tokens, one step")
    table.add_column("operator", no_wrap=True)
    for column in ("nodes", "weights, MB", "state, MB", "Mflop", "share of bytes"):
        table.add_column(column, justify="right")
    rows = figures["operators"].items()
    whole = sum(need["weight_bytes"] + need["state_bytes"] for _, need in rows)
    for name, need in sorted(rows, key=lambda row: -row[1]["weight_bytes"] - row[1]["state_bytes"]):
        size = need["weight_bytes"] + need["state_bytes"]
        cells = (need["weight_bytes"] / 1e6, need["state_bytes"] / 1e6, need["flops"] / 1e6)
        table.add_row(name, str(need["count"]), *(f"{cell:,.1f}" for cell in cells), f"{size / whole:.1%}")
    return table


def _dtypes(figures: dict[str, Any], name: str) -> Table:
    table = Table(title=f"weights alone, at the data sheet's rate of {name}")
    table.add_column("matrices")
    for column in ("bits a value", "GB a token", "the same, head and router bf16", "tokens/s"):
        table.add_column(column, justify="right")
    for key, row in figures["dtypes"].items():
        sizes = (row["gb_per_token"], row["gb_per_token_kept"])
        table.add_row(key, f"{row['bits']:.2f}", *(f"{size:.2f}" for size in sizes), f"{row['tokens_per_s']:.0f}")
    return table


def _print(report: dict[str, Any], console: Console) -> None:
    figures, name = report["figures"], report["machine"]["device"]
    console.print(_operators(figures))
    console.print(_dtypes(figures, name))
    console.print(
        f"{name}: {figures['tokens_per_s']:.0f} tokens/s from weights alone,"
        f" {figures['tokens_per_s_with_state']:.0f} with the state of {figures['context']} tokens"
        f" ({figures['state_gb_per_token']:.3f} GB), {figures['tokens_per_s_attained']:.0f} at the rate that reading"
        " attains; no activations, communication or waiting"
    )
    four, eight = figures["dtypes"]["nvfp4"], figures["dtypes"]["mxfp8"]
    console.print(
        f"NVFP4 is {four['gb_per_token']:.1f} GB and not half of MXFP8, {eight['gb_per_token'] / 2:.1f}: it has a scale"
        f" of 8 bits for 16 values, {four['bits']:.2f} bits in all; half of {eight['bits']:.2f} would be"
        f" {eight['bits'] / 2:.3f}, which leaves two bits for the scale"
    )


def roofline(config: RooflineConfig) -> None:
    """Count, print tables, write JSON. Raises: SpeedtierError."""
    report = roofline_report(config)
    _print(report, Console(soft_wrap=True))
    if config.json:
        write(config.json, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
