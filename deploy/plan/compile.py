"""`speedtier plan compile`: a plan file from a model and a machine."""

import time
from pathlib import Path

from rich.console import Console

from deploy.plan.config import CompileConfig
from deploy.plan.files import write
from deploy.plan.target import Target, compile_for
from persistent_engine.compile import PASSES
from persistent_engine.plan import encode
from speedtier.errors import ConfigError

__all__ = ["compile_to_file"]


def compile_to_file(config: CompileConfig) -> None:
    """Compile and write, or print what one pass made. Raises: SpeedtierError."""
    started = time.perf_counter()
    if config.dump and config.dump not in PASSES:
        raise ConfigError(f"dump is {config.dump!r}; choose one of {', '.join(PASSES)}")
    dumps: dict[str, str] = {}
    plan = compile_for(
        Target(
            config.model,
            config.device,
            config.context,
            config.batch,
            config.draft_depth,
            config.policy,
            config.workers,
            config.weights,
        ),
        dumps.__setitem__ if config.dump else None,
    )
    if config.dump:
        print(dumps[config.dump], end="")
        return
    data = encode(plan)
    write(config.out, data)
    Console(soft_wrap=True).print(
        f"{config.out}: {len(plan.tasks)} tasks for {len(plan.workers)} workers, {len(data) / 1e6:.1f} MB,"
        f" {time.perf_counter() - started:.1f} s; next: speedtier plan check {Path(config.out)}",
        markup=False,
        highlight=False,
    )
