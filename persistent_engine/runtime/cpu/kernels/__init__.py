"""numba kernels, one file per group of operators of the manifest."""

from persistent_engine.runtime.cpu.kernels.dispatch import ADDRESS, COLS, FIELDS, MOST_ARGS, ROWS, run_task

__all__ = ["ADDRESS", "COLS", "FIELDS", "MOST_ARGS", "ROWS", "run_task"]
