"""Machine: what one step costs on a machine, as the simulator needs it. Every figure is of one device, in SI units.

Invariant: no figure here depends on a model or a plan; each is from a data sheet or a measurement of its own.
"""

import os

import msgspec

__all__ = ["Machine", "this_machine"]


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates and latencies of one device of a machine.

    lanes: streaming multiprocessors (cores of a CPU). hbm_bytes_per_s: all lanes together. lane_bytes_per_s: most that
    one lane draws from memory. l2_bytes_per_s, link_bytes_per_s: on-chip cache, and out of the device to its peers.
    flops_per_s: all lanes, by dtype name (`BF16`, `FP8`, ...).

    hbm_s, l2_s: from asking to the first byte. signal_s: from a task's last store to its counter's being visible on the
    device (fence and atomic). wait_s: from a counter's being visible to the waiting lanes' going on. check_s: a wait
    that holds already. hop_s: more, when counter or reader is on another device. task_s: fetching a task's row.

    launch_s: a kernel's start to the next one's, when a host launches each. replay_s: the same inside a recorded graph.
    drain_s: from a kernel's last lane being done to the next kernel's first.
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


def this_machine(cores: int = 0) -> Machine:
    """The CPU that we run on, one device whose lanes are its cores. cores 0: those that this process may use.

    Figures: two-core x86-64 with AVX-512, one core alone and both: bfloat16 matrix-vector products 12 and 27 GB/s of
    30 GB/s; a round trip between two threads by atomics 0.27 to 0.36 µs, halved; other latencies are a load's that
    misses (80 ns) or hits the last cache (20 ns). Kernel launches: a wake-up through a futex, 5 µs; replays do not
    exist, so a function call.
    """
    lanes = cores or len(os.sched_getaffinity(0))
    return Machine(
        name="cpu",
        devices=1,
        lanes=lanes,
        hbm_bytes_per_s=30e9,
        lane_bytes_per_s=13.5e9,
        l2_bytes_per_s=100e9 * lanes,
        link_bytes_per_s=10e9,
        flops_per_s=dict.fromkeys(("F32", "BF16", "FP8", "MXFP8", "NVFP4", "I32"), 40e9 * lanes),
        hbm_s=80e-9,
        l2_s=20e-9,
        signal_s=0.08e-6,
        wait_s=0.08e-6,
        check_s=5e-9,
        hop_s=0.0,
        task_s=20e-9,
        launch_s=5e-6,
        replay_s=0.1e-6,
        drain_s=0.16e-6,
    )
