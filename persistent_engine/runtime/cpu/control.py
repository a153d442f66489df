"""Words that Python and the resident workers share. Each lies on its own cache line; all access is atomic.

Python writes SUBMIT, CANCEL and STOP; the leading worker writes GO, TAIL and DONE; a worker that gives up writes ABORT.
"""

from enum import IntEnum

__all__ = ["LINE", "WORDS", "Hang", "Reason", "Request", "Word"]

LINE = 8
"""int64 words of a cache line."""


class Word(IntEnum):
    """Index of each word in the control array."""

    GO = 0 * LINE
    SUBMIT = 1 * LINE
    CANCEL = 2 * LINE
    STOP = 3 * LINE
    TAIL = 4 * LINE
    DONE = 5 * LINE
    ABORT = 6 * LINE
    SLEEPERS = 7 * LINE
    READY = 8 * LINE


WORDS = 9 * LINE


class Request(IntEnum):
    """Fields of a submitted request, int64."""

    POSITION = 0
    TOKEN = 1
    MOST = 2
    SLOT = 3
    TOP_K = 4
    SEED = 5
    STOPS = 6
    WIDTH = 7


class Reason(IntEnum):
    """Why a request ended."""

    RUNNING = 0
    STOP = 1
    LENGTH = 2
    CANCELLED = 3
    FAILED = 4


class Hang(IntEnum):
    """Fields of the report of a worker whose wait went past its deadline, int64."""

    WORKER = 0
    TASK = 1
    EVENT = 2
    EXPECTED = 3
    ACTUAL = 4
    WIDTH = 5
