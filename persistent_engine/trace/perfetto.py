"""A trace in the Chrome trace event format, which ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format", Google, 2016: complete events (`X`) with microseconds, metadata events (`M`) for names.
A device is a process, a worker a thread; what a worker waits for is a slice of its own before the task.
"""

from typing import Any

import msgspec

from persistent_engine.trace.record import Trace

__all__ = ["perfetto"]

US = 1e6


def _names(trace: Trace) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for worker, track in enumerate(trace.tracks):
        process = {"ph": "M", "pid": track.device, "tid": worker}
        device = f"{track.device_name} (device {track.device})"
        events.append({**process, "name": "process_name", "args": {"name": device}})
        thread = f"worker {worker} {track.role} x{track.lanes}"
        events.append({**process, "name": "thread_name", "args": {"name": thread}})
        events.append({**process, "name": "thread_sort_index", "args": {"sort_index": worker}})
    return events


def perfetto(trace: Trace) -> bytes:
    """JSON of `trace`; the same trace gives the same bytes."""
    events = _names(trace)
    for span in trace.spans:
        place = {"ph": "X", "pid": trace.tracks[span.worker].device, "tid": span.worker}
        about = {"task": span.task, "epoch": span.epoch, "layer": span.layer, "after": span.after}
        if span.began_s > span.reached_s:
            times = {"ts": span.reached_s * US, "dur": (span.began_s - span.reached_s) * US}
            events.append({**place, **times, "name": "wait", "cat": "wait", "args": about})
        times = {"ts": span.began_s * US, "dur": (span.ended_s - span.began_s) * US}
        args = {**about, "label": span.label}
        events.append({**place, **times, "name": span.operator, "cat": "task", "args": args})
    source = {"source": trace.source, "model": trace.model, "device": trace.device, "plan": trace.plan}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": source})
