"""The columns of a plan's tables, and the enumerations their numbers mean.

A plan is integer tables and nothing else: no pointer, no name that is resolved while it runs. Every table is a
C-contiguous little-endian array; a row of `tasks` is 64 bytes. Column classes are the only place that knows the
position of a field, for the compiler, the codec, the renderer, the checker and every runtime.
"""

from enum import IntEnum
from typing import Any

import numpy as np

__all__ = [
    "Access",
    "Arg",
    "BufferKind",
    "BufferRow",
    "Device",
    "Dtype",
    "Event",
    "Register",
    "Role",
    "Task",
    "Wait",
    "WarpRole",
    "Worker",
]


class Dtype(IntEnum):
    """Element types of buffers. FP8: e4m3 with a float32 scale for each 128x128 block (DeepSeek-V3, arXiv 2412.19437,
    section 3.3). MXFP8: e4m3 with a shared 8-bit exponent for 32 values (OCP Microscaling Formats 1.0). NVFP4: e2m1
    with an e4m3 scale for 16 values (NVIDIA, "Introducing NVFP4")."""

    F32 = 0
    BF16 = 1
    I32 = 2
    FP8 = 3
    MXFP8 = 4
    NVFP4 = 5

    @property
    def bits(self) -> float:
        """Bits per element, its share of the scales included."""
        return (32.0, 16.0, 32.0, 8.0 + 32 / (128 * 128), 8.25, 4.5)[self]

    @property
    def item(self) -> int:
        """Bytes per element, without scales. Raises: ValueError for NVFP4, which has half a byte."""
        if self is Dtype.NVFP4:
            raise ValueError("an NVFP4 element has no whole bytes")
        return (4, 2, 4, 1, 1)[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """How numpy holds it; bfloat16 as uint16 bit patterns, FP8 as uint8. Raises: KeyError for others."""
        return np.dtype({Dtype.F32: "<f4", Dtype.BF16: "<u2", Dtype.I32: "<i4", Dtype.FP8: "u1"}[self])


class Role(IntEnum):
    """What a device does in a layer beside the feed-forward: attention workers, or top-k selection."""

    MLA = 0
    INDEXER = 1


class WarpRole(IntEnum):
    """What a worker does inside its device. ALL: everything, in turn, as a CPU thread does."""

    ALL = 0
    LOAD = 1
    COMPUTE = 2
    COMM = 3
    SELECT = 4


class BufferKind(IntEnum):
    """Where a buffer lives: per-step memory, model weights, or the slot of the request being decoded."""

    ACTIVATION = 0
    WEIGHT = 1
    STATE = 2


class Access(IntEnum):
    """What a task does with an argument."""

    READ = 0
    WRITE = 1


class Device(IntEnum):
    """Columns of `devices`: role, how many pages of activation memory it has, index of its name."""

    ROLE = 0
    PAGES = 1
    NAME = 2
    WIDTH = 3


class BufferRow(IntEnum):
    """Columns of `buffers`: kind, dtype, rows and cols of the box, index of its name in the manifest, the device whose
    memory holds it, and for activations its pages [PAGE_FIRST, PAGE_FIRST + PAGE_COUNT) there (count 0: memory of its
    own). Buffers may share pages when one is dead before the other is written."""

    KIND = 0
    DTYPE = 1
    ROWS = 2
    COLS = 3
    NAME = 4
    DEVICE = 5
    PAGE_FIRST = 6
    PAGE_COUNT = 7
    WIDTH = 8


class Task(IntEnum):
    """Columns of `tasks`. Ranges are (first, count) into waits, signals, args and params; rows [FIRST, LAST).

    TILES: how many tiles the row stands for: the lanes of its worker share them, and each adds one to every event that
    the row signals."""

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
    TILES = 15
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
    """Columns of `waits`: the event, how many signals of it one epoch brings, and how many epochs old they may be:
    threshold = count x (epoch - lag). LAG 1 is a credit: what was read in the step before may be written again."""

    EVENT = 0
    COUNT = 1
    LAG = 2
    WIDTH = 3


class Event(IntEnum):
    """Columns of `events`: signals per epoch, index of its name, the device whose memory holds the counter."""

    PRODUCERS = 0
    NAME = 1
    DEVICE = 2
    WIDTH = 3


class Worker(IntEnum):
    """Columns of `workers`: device, its queue [TASK_FIRST, TASK_FIRST + TASK_COUNT) of `tasks`, warp role, and how many
    lanes (streaming multiprocessors of a GPU; 1 on a CPU) run the tiles of a row side by side."""

    DEVICE = 0
    TASK_FIRST = 1
    TASK_COUNT = 2
    WARP_ROLE = 3
    LANES = 4
    WIDTH = 5


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
