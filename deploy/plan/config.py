"""What the `speedtier plan` commands need to know; their defaults are here and nowhere else."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "CheckConfig",
    "CompileConfig",
    "DiffConfig",
    "PlanFile",
    "ShowConfig",
    "SimulateConfig",
    "StepConfig",
    "TimelineConfig",
    "TraceConfig",
]

PlanFile = Annotated[str, Meta(description="A plan file.", extra={"argument": True})]
Model = Annotated[
    str, Meta(description="A model with built-in facts such as glm-5.1, or the directory of a checkpoint.")
]
Target = Annotated[str, Meta(description="The machine to run on, such as cpu or 8xB200.")]
Context = Annotated[int, Meta(ge=1, description="Tokens of state before the step.")]


class CompileConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From a model and a machine to a plan file."""

    model: Model
    device: Target = "cpu"
    out: Annotated[str, Meta(description="Plan file to write (no file is written with --dump).")] = "model.plan"
    context: Annotated[int, Meta(ge=1, description="Most tokens of state that the plan is for.")] = 4096
    batch: Annotated[Literal[1, 2, 4, 8], Meta(description="Requests decoded together.")] = 1
    draft_depth: Annotated[int, Meta(ge=0, le=7, description="Draft tokens that a step verifies; 0 for none.")] = 0
    policy: Annotated[str, Meta(description="How tasks are placed on workers.")] = "list"
    workers: Annotated[int, Meta(ge=0, description="Workers of a CPU plan; 0 for one a core.")] = 0
    weights: Annotated[
        Literal["auto", "F32", "BF16", "FP8", "MXFP8", "NVFP4"],
        Meta(description="Dtype of matrices; auto: the checkpoint's on a CPU, FP8 with FP8 state elsewhere."),
    ] = "auto"
    dump: Annotated[
        str, Meta(description="Print what this pass of the compiler made instead; any other word lists the passes.")
    ] = ""


class ShowConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan as tables for a person."""

    plan: PlanFile
    layer: Annotated[int | None, Meta(description="Show the tasks of this layer too (-1: before the first).")] = None


class CheckConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a plan keeps the rules P1 to P13."""

    plan: PlanFile
    device: Annotated[str, Meta(description="Check against the limits of this machine too.")] = ""
    certificate: Annotated[str, Meta(description="Where the certificate goes; empty: beside the plan.")] = ""


class DiffConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two plans, and what differs."""

    first: PlanFile
    second: Annotated[str, Meta(description="Another plan file.", extra={"argument": True})]


class StepConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan, or what to compile one from, and the step to simulate."""

    plan: Annotated[
        str, Meta(description="A plan file; empty to compile one of --model.", extra={"argument": True})
    ] = ""
    model: Annotated[str, Meta(description="Model to compile, as for `plan compile`, where no file is given.")] = ""
    device: Annotated[str, Meta(description="Machine; empty: the plan's own (cpu where one is compiled).")] = ""
    context: Context = 1024
    batch: Annotated[Literal[1, 2, 4, 8], Meta(description="Requests decoded together.")] = 1
    draft_depth: Annotated[int, Meta(ge=0, le=7, description="Draft tokens that a step verifies; 0 for none.")] = 0
    epochs: Annotated[int, Meta(ge=2, description="Steps to run; the first is not counted.")] = 3


class SimulateConfig(StepConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a step takes, and why."""

    acceptance: Annotated[
        float, Meta(ge=1, description="Tokens that a step commits on average, of 1 + draft depth; 1 without drafts.")
    ] = 1.0
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""


class TraceConfig(StepConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated step for Perfetto."""

    out: Annotated[str, Meta(description="JSON file to write; open it at ui.perfetto.dev.")]


class TimelineConfig(StepConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer of a simulated step as a picture."""

    layer: Annotated[int, Meta(description="The layer (-1: before the first).")] = 0
    out: Annotated[str, Meta(description="SVG file to write; any browser shows it.")]
