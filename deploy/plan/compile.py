"""`speedtier plan compile`: a plan file from a model and a machine."""

import time
from pathlib import Path

from rich.console import Console

from deploy.plan.config import CompileConfig
from deploy.plan.files import write
from deploy.plan.target import compile_for
from persistent_engine.plan import encode

__all__ = ["compile_to_file"]


def compile_to_file(config: CompileConfig) -> None:
    """Compile and write. Raises: SpeedtierError."""
    started = time.perf_counter()
    plan = compile_for(
        config.model, config.device, config.context, config.batch, config.draft_depth, config.policy, config.workers
    )
    data = encode(plan)
    write(config.out, data)
    Console(soft_wrap=True).print(
        f"{config.out}: {len(plan.tasks)} tasks for {len(plan.workers)} workers, {len(data) / 1e6:.1f} MB,"
        f" {time.perf_counter() - started:.1f} s; next: speedtier plan check {Path(config.out)}",
        markup=False,
        highlight=False,
    )
