"""Plan files: `encode` and `decode`.

File: 8 bytes magic, then one msgpack map {digest, manifest, tables: {name: bytes}}. A file whose digest does not
match its content is refused, so is one with a table of the wrong shape.
"""

import msgspec
import numpy as np

from persistent_engine.plan.plan import TABLES, Manifest, Plan
from speedtier.errors import PlanError

__all__ = ["decode", "encode"]

MAGIC = b"SPTPLAN2"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: str
    manifest: Manifest
    tables: dict[str, bytes]


def encode(plan: Plan) -> bytes:
    """Bytes of a plan file; the same plan gives the same bytes."""
    tables = {name: plan.table_bytes(name) for name in TABLES}
    return MAGIC + msgspec.msgpack.encode(_File(plan.digest, plan.manifest, tables), order="sorted")


def decode(data: bytes) -> Plan:
    """The plan in `data`.

    Raises: PlanError when it is not a plan file, is damaged, or misses a table.
    """
    if not data.startswith(MAGIC):
        raise PlanError(f"not a plan file: starts with {data[:8]!r}, wants {MAGIC!r}; compile it again")
    try:
        file = msgspec.msgpack.decode(data[len(MAGIC) :], type=_File)
    except msgspec.MsgspecError as error:
        raise PlanError(f"plan file is damaged: {error}; compile it again") from error
    if set(file.tables) != set(TABLES):
        raise PlanError(f"plan file has tables {sorted(file.tables)}, wants {sorted(TABLES)}; compile it again")
    tables = {}
    for name, (dtype, width) in TABLES.items():
        raw = file.tables[name]
        if len(raw) % (np.dtype(dtype).itemsize * width):
            raise PlanError(f"plan table {name!r} has {len(raw)} bytes, not whole rows; compile it again")
        tables[name] = np.frombuffer(raw, dtype=dtype).reshape(-1, width)
    plan = Plan(file.manifest, **tables)
    if plan.digest != file.digest:
        raise PlanError(f"plan file is damaged: digest {plan.digest} is not {file.digest}; compile it again")
    return plan
