"""Device profiles: what the compiler knows of a machine."""

import os

import msgspec

from persistent_engine.devices import DeviceSheet

__all__ = ["DeviceProfile", "profile_of", "this_cpu"]


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """devices: with memory of their own. workers: resident ones of each. bytes_per_s: what one of them reads. sync_s:
    signal on one worker to go on another.

    lanes: that share the tiles of a worker's rows; above 1 a task stands for many tiles, and a device has one worker
    for each warp role that its tasks need. replicated: every device that attends stores the token's state itself, in a
    plane of its own; else one stores and the others read the same slot.
    """

    name: str
    workers: int
    devices: int = 1
    bytes_per_s: float = 10e9
    sync_s: float = 0.4e-6
    lanes: int = 1
    replicated: bool = False


def this_cpu(workers: int = 0, devices: int = 1) -> DeviceProfile:
    """The machine we run on, as `devices` virtual ones. workers of each, 0: one per core that this process may use.

    Figures: bfloat16 matrix-vector product of one core, and a round trip between two threads halved, measured on a
    two-core x86-64 machine; they only steer placement.
    """
    cores = len(os.sched_getaffinity(0))
    return DeviceProfile(name="cpu", workers=workers or cores, devices=devices)


def profile_of(sheet: DeviceSheet) -> DeviceProfile:
    """The machine of a data sheet. Its devices share nothing, so each keeps the state that it attends to."""
    figures = sheet.figures
    return DeviceProfile(
        name=sheet.name,
        workers=1,
        devices=sheet.devices,
        bytes_per_s=figures.hbm_bytes_per_s.value * figures.hbm_calibration.value,
        sync_s=figures.signal_s.value + figures.wait_s.value,
        lanes=int(figures.lanes.value),
        replicated=True,
    )
