"""How fast this machine reads memory with a given number of threads, now."""

import threading
import time

import numpy as np

from persistent_engine.runtime.cpu.kernels.arithmetic import dot

__all__ = ["read_bandwidth"]

SIZE = 64 << 20
"""float32 elements in all: 256 MiB, far beyond the caches."""


def read_bandwidth(threads: int, rounds: int = 3) -> float:
    """Bytes a second, the median of `rounds`, of the kernel that every matrix-vector product is made of."""
    part = SIZE // threads
    data = [np.ones(part, np.float32) for _ in range(threads)]
    ones = np.ones(1 << 16, np.float32)
    dot(data[0], 0, ones, 0, 16)

    def read(mine: np.ndarray) -> None:
        for start in range(0, part, len(ones)):
            dot(mine, start, ones, 0, min(len(ones), part - start))

    seconds = []
    for _ in range(rounds):
        workers = [threading.Thread(target=read, args=(mine,)) for mine in data]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds.append(time.perf_counter() - start)
    return part * threads * 4 / float(np.median(seconds))
