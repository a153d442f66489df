"""The `speedtier plan` commands: compile, look at, check, compare, simulate and draw decode plans.

Invariant: each command's module imports what it needs alone, so that a plan can be looked at without its checker.
"""

from deploy.plan.config import (
    CheckConfig,
    CompileConfig,
    DiffConfig,
    ShowConfig,
    SimulateConfig,
    TimelineConfig,
    TraceConfig,
)

__all__ = [
    "CheckConfig",
    "CompileConfig",
    "DiffConfig",
    "ShowConfig",
    "SimulateConfig",
    "TimelineConfig",
    "TraceConfig",
]
