"""Small programs and machines: what simulator tests stand on."""

import dataclasses

from hypothesis import strategies as st

from persistent_engine.simulate import Job, Lane, Machine, Program

MACHINE = Machine(
    name="toy",
    devices=2,
    lanes=4,
    hbm_bytes_per_s=1000.0,
    lane_bytes_per_s=500.0,
    l2_bytes_per_s=4000.0,
    link_bytes_per_s=100.0,
    flops_per_s={"BF16": 4000.0, "F32": 2000.0, "FP8": 8000.0},
    hbm_s=0.5,
    l2_s=0.125,
    signal_s=0.0625,
    wait_s=0.25,
    check_s=0.125,
    hop_s=1.0,
    task_s=0.03125,
    launch_s=4.0,
    replay_s=2.0,
    drain_s=1.0,
    step_s=0.0,
)


def job(seconds=0.0, waits=(), signals=(), memory=0.0, least=None):  # type: ignore[no-untyped-def]
    """A job that takes `seconds` before `memory` bytes, drawn in `least` seconds when alone (1,000 bytes a second)."""
    least = memory / 1000.0 if least is None else least
    bound = "memory" if memory else "latency"
    return Job(0, "work", tuple(waits), tuple(signals), seconds, memory, least, bound)


def program(jobs, queues, events=(), sync=(0.0, 0.0, 0.0, 0.0), devices=None, rate=1000.0):  # type: ignore[no-untyped-def]
    """A program of `queues` (job numbers of each worker). sync: signal, wait, check, hop seconds."""
    devices = devices or [0] * len(queues)
    jobs = [dataclasses.replace(one, task=number) for number, one in enumerate(jobs)]
    lanes = [Lane(device, tuple(queue)) for device, queue in zip(devices, queues, strict=True)]
    return Program(jobs, lanes, list(events), [rate] * (max(devices) + 1), *sync)


@st.composite
def programs(draw, sync=None):  # type: ignore[no-untyped-def]
    """Programs that cannot stop: jobs wait for earlier ones only, and queues keep that order."""
    workers = draw(st.integers(1, 4))
    devices = [draw(st.integers(0, 1)) for _ in range(workers)]
    queues = [[] for _ in range(workers)]  # type: ignore[var-annotated]
    jobs, events = [], []
    for number in range(draw(st.integers(1, 14))):
        waits = [(event, 0) for event in range(len(events)) if draw(st.booleans()) and draw(st.booleans())]
        owner = draw(st.integers(0, workers - 1))
        signals = []
        if draw(st.booleans()):
            tiles = draw(st.integers(1, 3))
            signals, events = [(len(events), tiles)], [*events, (tiles, devices[owner])]
        memory = draw(st.sampled_from([0.0, 0.0, 100.0, 250.0, 1000.0]))
        least = memory / draw(st.sampled_from([1000.0, 500.0, 125.0])) if memory else draw(st.sampled_from([0, 0.5, 2]))
        jobs.append(job(draw(st.sampled_from([0.0, 0.25, 1.0])), waits, signals, memory, least))
        queues[owner].append(number)
    costs = sync or tuple(draw(st.sampled_from([0.0, 0.125, 0.5])) for _ in range(4))
    return program(jobs, queues, events, costs, devices)
