"""`speedtier plan trace` and `plan timeline`: a simulated step for Perfetto, and one layer of it as a picture."""

from rich.console import Console

from deploy.plan.config import StepConfig, TimelineConfig, TraceConfig
from deploy.plan.files import write
from deploy.plan.step import step_of
from persistent_engine.simulate import program_of, run
from persistent_engine.trace import Trace, layer_svg, perfetto, simulated

__all__ = ["timeline", "trace"]


def _traced(config: StepConfig) -> Trace:
    step = step_of(config)
    return simulated(step.plan, run(program_of(step.plan, step.costs, step.machine, step.load), config.epochs))


def trace(config: TraceConfig) -> None:
    """Write Perfetto's JSON. Raises: SpeedtierError."""
    traced = _traced(config)
    write(config.out, perfetto(traced))
    _say(f"{config.out}: {len(traced.spans)} tasks; open it at ui.perfetto.dev")


def timeline(config: TimelineConfig) -> None:
    """Write the picture. Raises: SpeedtierError."""
    write(config.out, layer_svg(_traced(config), config.layer).encode())
    _say(f"{config.out}: layer {config.layer}; any browser shows it")


def _say(line: str) -> None:
    Console(soft_wrap=True).print(line, markup=False, highlight=False)
