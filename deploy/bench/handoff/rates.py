"""Rates of each transport against memcpy and plain loopback sockets, in one run.

`ratio.shm_memcpy`, `ratio.nixl_memcpy`: to copying the same pieces within one process. `ratio.tcp_sockets`,
`ratio.mooncake_sockets`: to sending them over a plain socket. Each is the worse of the two loads.
"""

from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.progress import track

from deploy.bench.handoff.config import HandoffBenchConfig
from deploy.bench.handoff.load import LOADS, Load
from deploy.bench.handoff.near import Near
from deploy.bench.handoff.part import Part
from speedtier.errors import ConfigError
from tilert_connector.transport import TRANSPORTS

__all__ = ["rates"]

PLAIN = {"shm": "memcpy", "nixl": "memcpy", "tcp": "sockets", "mooncake": "sockets"}
WARM_UP = 2


def rates(config: HandoffBenchConfig) -> Part:
    """Measure. Raises: SpeedtierError."""
    names = tuple(name.strip() for name in config.transports.split(",") if name.strip())
    for name in names:
        if name not in TRANSPORTS:
            raise ConfigError(f"transports: {name!r} is none of {', '.join(TRANSPORTS)}")
    seconds: dict[tuple[str, Load], list[float]] = {}
    with Near(names) as near:
        names = tuple(name for name in names if name not in near.missing)
        ways: dict[str, Callable[[Load], float]] = {"memcpy": near.memcpy, "sockets": near.sockets}
        ways |= {name: (lambda load, name=name: near.transport(name, load)) for name in names}  # type: ignore[misc]
        rounds = range(config.rounds + WARM_UP)
        for number in track(rounds, "measuring", console=Console(stderr=True), transient=True):
            for load in LOADS:
                for way, measure in ways.items():
                    took = measure(load)
                    if number >= WARM_UP:
                        seconds.setdefault((way, load), []).append(took)
        notes = tuple(f"{name} is left out: {why}" for name, why in near.missing.items())
    return _part({key: median(values) for key, values in seconds.items()}, names, notes)


def _part(took: dict[tuple[str, Load], float], names: tuple[str, ...], notes: tuple[str, ...]) -> Part:
    ratio: dict[str, float] = {}
    rows = []
    for way in ("memcpy", "sockets", *names):
        row = [way]
        for load in LOADS:
            row.append(f"{load.bytes / took[way, load] / 1e9:.2f}")
        worst = [min(took[plain, load] / took[way, load] for load in LOADS) for plain in ("memcpy", "sockets")]
        rows.append((*row, *(f"{value:.2f}" for value in worst)))
        if way in PLAIN:
            ratio[f"{way}_{PLAIN[way]}"] = min(took[PLAIN[way], load] / took[way, load] for load in LOADS)
    return Part(
        title="handoff, two processes, checksums on",
        columns=("way", *(f"{load.name}, GB/s" for load in LOADS), "worse ratio to memcpy", "to sockets"),
        rows=tuple(rows),
        notes=notes,
        figures={f"{way}.gb_per_s": {load.name: load.bytes / took[way, load] / 1e9 for load in LOADS} for way in names},
        against={
            way: {"gb_per_s": {load.name: load.bytes / took[way, load] / 1e9 for load in LOADS}}
            for way in ("memcpy", "sockets")
        },
        ratio=ratio,
    )
