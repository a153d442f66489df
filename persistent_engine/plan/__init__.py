"""The plan: what a compiler writes, a checker reads and a runtime drives. Knows no operator and no model."""

from persistent_engine.plan.codec import decode, encode
from persistent_engine.plan.plan import TABLES, Manifest, Plan
from persistent_engine.plan.records import (
    Access,
    Arg,
    BufferKind,
    BufferRow,
    Dtype,
    Event,
    Register,
    Task,
    Wait,
    Worker,
)
from persistent_engine.plan.render import render

__all__ = [
    "TABLES",
    "Access",
    "Arg",
    "BufferKind",
    "BufferRow",
    "Dtype",
    "Event",
    "Manifest",
    "Plan",
    "Register",
    "Task",
    "Wait",
    "Worker",
    "decode",
    "encode",
    "render",
]
