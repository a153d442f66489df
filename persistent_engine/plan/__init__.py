"""The plan: what a compiler writes, a checker reads and a runtime drives. Knows no operator and no model."""

from persistent_engine.plan.codec import decode, encode
from persistent_engine.plan.plan import TABLES, Manifest, Plan
from persistent_engine.plan.records import (
    Access,
    Arg,
    BufferKind,
    BufferRow,
    Device,
    Dtype,
    Event,
    Register,
    Role,
    Task,
    Wait,
    WarpRole,
    Worker,
)
from persistent_engine.plan.render import render

__all__ = [
    "TABLES",
    "Access",
    "Arg",
    "BufferKind",
    "BufferRow",
    "Device",
    "Dtype",
    "Event",
    "Manifest",
    "Plan",
    "Register",
    "Role",
    "Task",
    "Wait",
    "WarpRole",
    "Worker",
    "decode",
    "encode",
    "render",
]
