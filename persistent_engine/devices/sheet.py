"""DeviceSheet: the figures of one machine, read from its data file.

Invariant: every figure has a source of its own (data sheet, paper, measurement), or says from which of the others it is
derived; none is chosen so that a prediction comes out. Figures are of one device, in SI units.
"""

from importlib.resources import files

import msgspec

from persistent_engine.plan import Dtype
from speedtier.errors import PlanError

__all__ = ["DEVICES", "DeviceSheet", "Figure", "Figures", "Selection", "device"]


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number and where it is from."""

    value: float
    source: str


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of one device.

    clock_hz: highest sustained. lanes: streaming multiprocessors (cores of a CPU). memory_bytes: of the device.
    hbm_bytes_per_s: data sheet; times hbm_calibration: what reading attains. hbm_s, l2_s: a dependent load's time.
    lane_bytes_per_s: most that one lane draws. shared_bytes, register_bytes: of one lane.
    link_bytes_per_s: out of the device, one direction, data sheet; times link_calibration: what is attained.
    hop_s: what it takes longer until a store is seen, when writer and reader are on different devices.
    signal_s: from a task's last store to its counter's being visible. wait_s: from that to the waiting lane's going
    on. check_s: looking at a counter that has its value already. task_s: fetching a task's row.
    launch_s: between the starts of two kernels that a host launches; replay_s: the same inside a recorded graph.
    drain_s: from a kernel's last lane to the next one's first. step_s: launching a graph and seeing its end.
    """

    clock_hz: Figure
    lanes: Figure
    memory_bytes: Figure
    hbm_bytes_per_s: Figure
    hbm_calibration: Figure
    hbm_s: Figure
    l2_bytes: Figure
    l2_s: Figure
    l2_bytes_per_s: Figure
    lane_bytes_per_s: Figure
    shared_bytes: Figure
    register_bytes: Figure
    link_bytes_per_s: Figure
    link_calibration: Figure
    hop_s: Figure
    signal_s: Figure
    wait_s: Figure
    check_s: Figure
    task_s: Figure
    launch_s: Figure
    replay_s: Figure
    drain_s: Figure
    step_s: Figure


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of choosing the 2,048 largest of so many scores, for one to a few rows side by side. Fewer scores
    than the first entry were not measured."""

    scores: tuple[int, ...]
    seconds: tuple[float, ...]
    source: str


class DeviceSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine. devices: how many alike. flops: operations a second of one device, dense, by the name of a Dtype.
    selection: where it was measured."""

    name: str
    devices: int
    note: str
    figures: Figures
    flops: dict[str, Figure]
    selection: Selection | None = None

    @property
    def datasheet_bytes_per_s(self) -> float:
        """What the memories of all devices deliver together by data sheet."""
        return self.devices * self.figures.hbm_bytes_per_s.value

    @property
    def attained_bytes_per_s(self) -> float:
        """What reading attains from the memories of all devices together."""
        return self.datasheet_bytes_per_s * self.figures.hbm_calibration.value

    def flops_per_s(self, dtype: Dtype) -> float:
        """Of all devices together."""
        return self.devices * self.flops[dtype.name].value

    def sources(self) -> dict[str, tuple[float, str]]:
        """Every figure by name: value and source."""
        own = {name: getattr(self.figures, name) for name in self.figures.__struct_fields__}
        own |= {f"flops.{name}": figure for name, figure in self.flops.items()}
        return {name: (figure.value, figure.source) for name, figure in own.items()}


_DATA = files("persistent_engine.devices") / "data"

DEVICES: tuple[str, ...] = tuple(sorted(entry.name[: -len(".json")] for entry in _DATA.iterdir()))
"""Names that `device` takes."""


def device(name: str) -> DeviceSheet:
    """The machine called `name`, such as `8xB200`. Raises: PlanError for a name that is not in DEVICES."""
    if name not in DEVICES:
        raise PlanError(f"device is {name!r}; choose one of {', '.join(DEVICES)}")
    return msgspec.json.decode((_DATA / f"{name}.json").read_bytes(), type=DeviceSheet)
