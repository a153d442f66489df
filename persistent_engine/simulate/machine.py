"""Machine: what one step costs on a machine, as the simulator needs it. Every figure is of one device, in SI units.

Invariant: no figure here depends on a model or a plan; each is from a data sheet or a measurement of its own.
"""

import msgspec

from persistent_engine.devices import DeviceSheet

__all__ = ["Machine", "machine_from"]


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates and latencies of one device of a machine.

    lanes: streaming multiprocessors (cores of a CPU). hbm_bytes_per_s: all lanes together. lane_bytes_per_s: most that
    one lane draws from memory. l2_bytes_per_s, link_bytes_per_s: on-chip cache, and out of the device to its peers.
    flops_per_s: all lanes, by dtype name (`BF16`, `FP8`, ...).

    hbm_s, l2_s: from asking to the first byte. signal_s: from a task's last store to its counter's being visible on the
    device (fence and atomic). wait_s: from a counter's being visible to the waiting lanes' going on. check_s: a wait
    that holds already. hop_s: more, when counter or reader is on another device. task_s: fetching a task's row.

    launch_s: a kernel's start to the next one's, at least, when a host launches each. replay_s: the same inside a
    recorded graph. drain_s: from a kernel's last lane being done to the next one's first. step_s: between steps, when
    a host starts each and sees its end. selection: measured (scores, seconds) of choosing the largest, ascending; empty
    where nobody measured.
    """

    name: str
    devices: int
    lanes: int
    hbm_bytes_per_s: float
    lane_bytes_per_s: float
    l2_bytes_per_s: float
    link_bytes_per_s: float
    flops_per_s: dict[str, float]
    hbm_s: float
    l2_s: float
    signal_s: float
    wait_s: float
    check_s: float
    hop_s: float
    task_s: float
    launch_s: float
    replay_s: float
    drain_s: float
    step_s: float
    selection: tuple[tuple[float, float], ...] = ()


def machine_from(sheet: DeviceSheet) -> Machine:
    """The machine of a device sheet: its rates as attained, not as on the data sheet."""
    figures = sheet.figures
    return Machine(
        name=sheet.name,
        devices=sheet.devices,
        lanes=int(figures.lanes.value),
        hbm_bytes_per_s=figures.hbm_bytes_per_s.value * figures.hbm_calibration.value,
        lane_bytes_per_s=figures.lane_bytes_per_s.value,
        l2_bytes_per_s=figures.l2_bytes_per_s.value,
        link_bytes_per_s=figures.link_bytes_per_s.value * figures.link_calibration.value,
        flops_per_s={dtype: figure.value for dtype, figure in sheet.flops.items()},
        hbm_s=figures.hbm_s.value,
        l2_s=figures.l2_s.value,
        signal_s=figures.signal_s.value,
        wait_s=figures.wait_s.value,
        check_s=figures.check_s.value,
        hop_s=figures.hop_s.value,
        task_s=figures.task_s.value,
        launch_s=figures.launch_s.value,
        replay_s=figures.replay_s.value,
        drain_s=figures.drain_s.value,
        step_s=figures.step_s.value,
        selection=tuple(zip(sheet.selection.scores, sheet.selection.seconds, strict=True)) if sheet.selection else (),
    )
