"""Runtimes: bind a plan to memory, then drive it."""

from persistent_engine.runtime.bind import Binding, allocate
from persistent_engine.runtime.engine import (
    DecodeEngine,
    EngineBusy,
    EngineFailed,
    FakeEngine,
    FinishReason,
    Job,
    Sampling,
)
from persistent_engine.runtime.reference import interpret

__all__ = [
    "Binding",
    "DecodeEngine",
    "EngineBusy",
    "EngineFailed",
    "FakeEngine",
    "FinishReason",
    "Job",
    "Sampling",
    "allocate",
    "interpret",
]
