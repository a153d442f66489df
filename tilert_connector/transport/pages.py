"""A slot's memory, which can be taken away from every writer at once without moving.

Writers outside this process reach it through other names than the engine: the file descriptor, or a second address
(`alias`). `renew` puts fresh pages under the engine's address and an empty sink under the second one, so that a writer
that was stopped in the middle of a write and goes on later writes into memory that nobody reads. That holds whatever
carries the write: a mapping, a cross-process copy, an engine's socket, a network card that has the old pages pinned.

Invariants: `array` keeps its address for life; after `renew` returned, nothing that was known of the slot before
reaches what `array` shows. Linux only (memfd_create).
"""

import ctypes
import mmap
import os
import secrets
import threading
import weakref
from typing import Protocol

import numpy as np

from speedtier.errors import ConfigError
from tilert_connector.layout.views import Bytes

__all__ = ["HeapSlot", "Slot", "SlotPages"]

MAP_FIXED, MAP_NORESERVE, MAP_POPULATE = 0x10, 0x4000, 0x8000
PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
NOWHERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(address: int | None, size: int, flags: int, descriptor: int = -1) -> int:
    """Raises OSError."""
    got = _libc.mmap(address, size, PROTECTION, flags, descriptor, 0)
    if got is None or got == ctypes.c_size_t(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(got)


class Slot(Protocol):
    """A slot's memory."""

    @property
    def array(self) -> Bytes:
        """uint8[size], at the same address for life."""


class SlotPages:
    """`size` zeroed bytes. Raises ConfigError where the system has no memory of this kind, or not as much."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._mapped = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._lock = threading.Lock()
        self._alias: int | None = None
        self._retired: list[int] = []
        self.epoch = secrets.token_bytes(16)
        """Names these pages; another one after each `renew`."""
        try:
            home = mmap.mmap(-1, self._mapped, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
            self.array: Bytes = np.frombuffer(home, np.uint8, size)
            """uint8[size], where the engine reads."""
            self._home = self.array.ctypes.data
            self._files = [self._file()]
            weakref.finalize(self, _close, self._files)
            _map(self._home, self._mapped, mmap.MAP_SHARED | MAP_FIXED | MAP_POPULATE, self._files[-1])
        except (OSError, AttributeError) as error:
            raise ConfigError(f"slots: cannot have {size} bytes that writers may share: {error}") from error

    def share(self) -> tuple[bytes, int]:
        """(epoch, the memory file of these pages); the descriptor is the caller's to close."""
        with self._lock:
            return self.epoch, os.dup(self._files[-1])

    def alias(self) -> tuple[bytes, int]:
        """(epoch, a second address of these pages), for engines that write to addresses."""
        with self._lock:
            if self._alias is None:
                self._alias = _map(None, self._mapped, mmap.MAP_SHARED, self._files[-1])
            return self.epoch, self._alias

    def renew(self) -> None:
        """Take the pages away from whoever writes to them, and their content with them."""
        with self._lock:
            fresh = self._file()
            _map(self._home, self._mapped, mmap.MAP_SHARED | MAP_FIXED, fresh)
            os.close(self._files.pop())
            self._files.append(fresh)
            self.epoch = secrets.token_bytes(16)
            for address in self._retired:  # what late writers have left there
                _libc.madvise(address, self._mapped, mmap.MADV_DONTNEED)
            if self._alias is not None:
                # Never unmapped: a late write must not meet anything else at this address, for as long as we live.
                _map(self._alias, self._mapped, NOWHERE | MAP_FIXED)
                self._retired.append(self._alias)
                self._alias = None

    def _file(self) -> int:
        descriptor = os.memfd_create("speedtier-slot", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, self._mapped)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


class HeapSlot:
    """`size` zeroed bytes on a cache-line boundary, for transports that land every byte themselves."""

    def __init__(self, size: int) -> None:
        raw = np.zeros(size + 64, np.uint8)
        self.array: Bytes = raw[-raw.ctypes.data % 64 :][:size]
