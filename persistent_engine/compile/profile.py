"""Device profiles: what the compiler knows of a machine."""

import os

import msgspec

__all__ = ["DeviceProfile", "this_cpu"]


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """workers: resident workers. bytes_per_s: what one of them reads. sync_s: signal on one worker to go on another."""

    name: str
    workers: int
    bytes_per_s: float = 10e9
    sync_s: float = 0.4e-6


def this_cpu(workers: int = 0) -> DeviceProfile:
    """The machine we run on. workers 0: one per core that this process may use.

    Figures: bfloat16 matrix-vector product of one core, and a round trip between two threads halved, measured on a
    two-core x86-64 machine; they only steer placement.
    """
    cores = len(os.sched_getaffinity(0))
    return DeviceProfile(name="cpu", workers=workers or cores)
