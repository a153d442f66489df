"""Memory at addresses that we choose: reserved once, and laid out anew under whoever holds the address.

Large memory begins on a huge page's boundary and is asked to be made of huge pages: copying to shared memory in small
ones costs a fifth of the rate. Linux only.

Invariant: a reservation lives as long as its array, whatever was laid over it.
"""

import ctypes
import mmap
import os

import numpy as np

from tilert_connector.layout.views import Bytes

__all__ = ["collapse", "drop", "lay_file", "lay_nothing", "reserve", "rounded"]

HUGE = 2 << 20
MAP_FIXED, MAP_NORESERVE, MAP_POPULATE = 0x10, 0x4000, 0x8000
MADV_COLLAPSE = 25
NOWHERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE

_libc = ctypes.CDLL(None, use_errno=True)


def rounded(size: int) -> int:
    """Bytes that memory of `size` bytes takes: whole pages, huge ones if one fits."""
    page = HUGE if size >= HUGE else mmap.PAGESIZE
    return -(-size // page) * page


def reserve(size: int) -> Bytes:
    """uint8[rounded(size)] that is backed by nothing yet. Raises OSError."""
    room = rounded(size)
    home = np.frombuffer(mmap.mmap(-1, room + HUGE, flags=NOWHERE), np.uint8)
    return home[-home.ctypes.data % HUGE :][:room]


def lay_file(array: Bytes, descriptor: int, populate: bool = False) -> None:
    """Show the file's memory at the array's address instead of what was there. Raises OSError."""
    _map(array, mmap.MAP_SHARED | (MAP_POPULATE if populate else 0), descriptor)


def lay_nothing(array: Bytes) -> None:
    """Show empty memory at the array's address, which nobody else sees. Raises OSError."""
    _map(array, NOWHERE, -1)


def collapse(array: Bytes) -> None:
    """Make it of huge pages where the system has them; it may not, and nothing depends on it."""
    if array.size >= HUGE:
        _libc.madvise(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size), MADV_COLLAPSE)


def drop(array: Bytes) -> None:
    """Give back the memory that was written into `lay_nothing`."""
    _libc.madvise(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size), mmap.MADV_DONTNEED)


def _map(array: Bytes, flags: int, descriptor: int) -> None:
    _libc.mmap.restype = ctypes.c_void_p
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size)
    got = _libc.mmap(address, size, protection, flags | MAP_FIXED, descriptor, ctypes.c_long(0))
    if got != array.ctypes.data:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
