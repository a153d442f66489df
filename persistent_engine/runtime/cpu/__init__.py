"""The CPU back end: resident numba workers."""

from persistent_engine.runtime.cpu.engine import CpuEngine
from persistent_engine.runtime.cpu.resident import Resident

__all__ = ["CpuEngine", "Resident"]
