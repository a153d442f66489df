"""Costs read from a plan's boxes alone: every element that a task names is moved once, weights from memory.

For plans whose operators have no formulas, and as the measure that formulas are compared with. Two arithmetic
operations for each element of a weight. What a task takes of a state plane is the context's rows of its box.
"""

from persistent_engine.plan import Arg, BufferKind, BufferRow, Dtype, Plan, Task
from persistent_engine.simulate.cost import Load, Work

__all__ = ["BoxCosts"]


class BoxCosts:
    """Work from boxes; `Costs` by shape only."""

    def work(self, plan: Plan, task: int, load: Load) -> Work:
        """As `Costs.work`."""
        row = plan.tasks[task]
        memory = cache = flops = 0.0
        dtype = Dtype.BF16
        for arg in plan.args[row[Task.ARG_FIRST] : row[Task.ARG_FIRST] + row[Task.ARG_COUNT]].tolist():
            buffer = plan.buffers[arg[Arg.BUFFER]].tolist()
            kind, cols = buffer[BufferRow.KIND], arg[Arg.COL_LAST] - arg[Arg.COL_FIRST]
            rows = arg[Arg.ROW_LAST] - arg[Arg.ROW_FIRST]
            if kind == BufferKind.STATE:
                rows = min(rows, load.context) if arg[Arg.ACCESS] == 0 else load.tokens
            size = rows * cols * Dtype(buffer[BufferRow.DTYPE]).bits / 8
            if kind == BufferKind.ACTIVATION:
                cache += size
            else:
                memory += size
                flops += 2.0 * rows * cols * load.tokens * load.batch
                dtype = Dtype(buffer[BufferRow.DTYPE]) if kind == BufferKind.WEIGHT else dtype
        return Work(memory, cache, 0.0, flops, dtype.name, 1.0, int(row[Task.TILES]))
