"""The columns of a plan's tables, and the enumerations their numbers mean.

A plan is integer tables and nothing else: no pointer, no name that is resolved while it runs. Every table is a
C-contiguous little-endian array; a row of `tasks` is 64 bytes. Column classes are the only place that knows the
position of a field, for the compiler, the codec, the renderer, the checker and every runtime.
"""

from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["Access", "Arg", "BufferKind", "BufferRow", "Dtype", "Event", "Register", "Task", "Wait", "Worker"]


class Dtype(IntEnum):
    """Element types of buffers."""

    F32 = 0
    BF16 = 1
    I32 = 2

    @property
    def item(self) -> int:
        """Bytes per element."""
        return 2 if self is Dtype.BF16 else 4

    @property
    def numpy(self) -> np.dtype[Any]:
        """How numpy holds it; bfloat16 as uint16 bit patterns."""
        return np.dtype({Dtype.F32: "<f4", Dtype.BF16: "<u2", Dtype.I32: "<i4"}[self])


class BufferKind(IntEnum):
    """Where a buffer lives: per-step memory, model weights, or the slot of the request being decoded."""

    ACTIVATION = 0
    WEIGHT = 1
    STATE = 2


class Access(IntEnum):
    """What a task does with an argument."""

    READ = 0
    WRITE = 1


class BufferRow(IntEnum):
    """Columns of `buffers`: kind, dtype, rows and cols of the box, index of its name in the manifest."""

    KIND = 0
    DTYPE = 1
    ROWS = 2
    COLS = 3
    NAME = 4
    WIDTH = 5


class Task(IntEnum):
    """Columns of `tasks`. Ranges are (first, count) into waits, signals, args and params; rows [FIRST, LAST)."""

    OPERATOR = 0
    WORKER = 1
    WAIT_FIRST = 2
    WAIT_COUNT = 3
    SIGNAL_FIRST = 4
    SIGNAL_COUNT = 5
    ARG_FIRST = 6
    ARG_COUNT = 7
    PARAM_FIRST = 8
    PARAM_COUNT = 9
    ROW_FIRST = 10
    ROW_LAST = 11
    LABEL = 12
    LAYER = 13
    DEVICE = 14
    RESERVED = 15
    WIDTH = 16


class Arg(IntEnum):
    """Columns of `args`: a buffer, how it is used, and the box of it that the task touches (half open)."""

    BUFFER = 0
    ACCESS = 1
    ROW_FIRST = 2
    ROW_LAST = 3
    COL_FIRST = 4
    COL_LAST = 5
    WIDTH = 6


class Wait(IntEnum):
    """Columns of `waits`: the event, and how many signals of it one epoch brings (threshold = count x epoch)."""

    EVENT = 0
    COUNT = 1
    WIDTH = 2


class Event(IntEnum):
    """Columns of `events`: signals per epoch, index of its name."""

    PRODUCERS = 0
    NAME = 1
    WIDTH = 2


class Worker(IntEnum):
    """Columns of `workers`: device, and its queue [TASK_FIRST, TASK_FIRST + TASK_COUNT) of `tasks`."""

    DEVICE = 0
    TASK_FIRST = 1
    TASK_COUNT = 2
    WIDTH = 3


class Register(IntEnum):
    """Step registers: what one epoch reads of the request, written between epochs by the leading worker only."""

    POSITION = 0
    TOKEN = 1
    TOP_K = 2
    SEED = 3
    NEXT = 4
    TEMPERATURE = 5
    TOP_P = 6
    MIN_P = 7
    COUNT = 8
