"""What figures were measured on."""

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Processor, cores that we may use, system."""
    model = "unknown"
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "system": platform.platform()}
