"""Plan files on disk, read and written.

Invariant: what cannot be read or written is a PlanError that names the file.
"""

from pathlib import Path

from persistent_engine.plan import Plan, decode
from speedtier.errors import PlanError

__all__ = ["read", "read_bytes", "write"]


def read_bytes(name: str) -> bytes:
    """Bytes of the file. Raises: PlanError."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise PlanError(
            f"plan file {name!r} cannot be read: {error.strerror}; `speedtier plan compile` makes one"
        ) from error


def read(name: str) -> Plan:
    """The plan in the file. Raises: PlanError."""
    try:
        return decode(read_bytes(name))
    except PlanError as error:
        raise PlanError(f"{name}: {error}") from error


def write(name: str, data: bytes) -> None:
    """Write a file, whatever it holds. Raises: PlanError."""
    try:
        Path(name).write_bytes(data)
    except OSError as error:
        raise PlanError(f"{name!r} cannot be written: {error.strerror}; give another file") from error
