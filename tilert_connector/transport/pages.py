"""A slot's memory, which can be taken away from every writer at once without moving.

Writers outside this process reach it through other names than the engine: the file descriptor, or a second address
(`alias`). `renew` puts fresh pages under the engine's address and an empty sink under the second one, so that a writer
that was stopped in the middle of a write and goes on later writes into memory that nobody reads. That holds whatever
carries the write: a mapping, a cross-process copy, an engine's socket, a network card that has the old pages pinned.

Invariants: `array` keeps its address for life; after `renew` returned, nothing that was known of the slot before
reaches what `array` shows. Linux only (memfd_create).
"""

import os
import secrets
import threading
import weakref
from typing import Protocol

import numpy as np

from speedtier.errors import ConfigError
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.mapped import collapse, drop, lay_file, lay_nothing, reserve, rounded

__all__ = ["HeapSlot", "Slot", "SlotPages"]


class Slot(Protocol):
    """A slot's memory."""

    @property
    def array(self) -> Bytes:
        """uint8[size], at the same address for life."""


class SlotPages:
    """`size` zeroed bytes. Raises ConfigError where the system has no memory of this kind, or not as much."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._alias: Bytes | None = None
        self._retired: list[Bytes] = []
        self.epoch = secrets.token_bytes(16)
        """Names these pages; another one after each `renew`."""
        try:
            self._files = [self._file()]
            weakref.finalize(self, _close, self._files)
            self._home = reserve(size)
            lay_file(self._home, self._files[-1])
            collapse(self._home)
        except (OSError, AttributeError) as error:
            raise ConfigError(f"slots: cannot have {size} bytes that writers may share: {error}") from error
        self.array: Bytes = self._home[:size]
        """uint8[size], where the engine reads."""
        self.array[:] = 0  # so that they are there from the start, or the start fails

    def share(self) -> tuple[bytes, int]:
        """(epoch, the memory file of these pages); the descriptor is the caller's to close."""
        with self._lock:
            return self.epoch, os.dup(self._files[-1])

    def alias(self) -> tuple[bytes, int]:
        """(epoch, a second address of these pages), for engines that write to addresses."""
        with self._lock:
            if self._alias is None:
                self._alias = reserve(self.size)
                lay_file(self._alias, self._files[-1])
            return self.epoch, self._alias.ctypes.data

    def renew(self) -> None:
        """Take the pages away from whoever writes to them, and their content with them."""
        with self._lock:
            fresh = self._file()
            lay_file(self._home, fresh)
            os.close(self._files.pop())
            self._files.append(fresh)
            self.epoch = secrets.token_bytes(16)
            for address in self._retired:  # what late writers have left there
                drop(address)
            if self._alias is not None:
                lay_nothing(self._alias)
                _retired_for_good.append(self._alias)
                self._retired.append(self._alias)
                self._alias = None

    def _file(self) -> int:
        descriptor = os.memfd_create("speedtier-slot", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, rounded(self.size))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


_retired_for_good: list[Bytes] = []
"""Never unmapped: a late write must not meet anything else at such an address, for as long as this process lives."""


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


class HeapSlot:
    """`size` zeroed bytes on a cache-line boundary, for transports that land every byte themselves."""

    def __init__(self, size: int) -> None:
        raw = np.zeros(size + 64, np.uint8)
        self.array: Bytes = raw[-raw.ctypes.data % 64 :][:size]
