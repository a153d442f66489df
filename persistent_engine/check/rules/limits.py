"""P3: what the plan asks of a machine is there, at once.

Workers are resident: the lanes of the workers of one device and warp role all run side by side, so together they are
no more than the device's multiprocessors. Activation pages lie within those of their device, and a buffer within its
pages.
"""

from collections import Counter

import numpy as np

from persistent_engine.check.found import Found
from persistent_engine.check.report import Finding
from persistent_engine.check.view import View
from persistent_engine.plan import BufferKind, BufferRow, Device, Dtype, WarpRole, Worker

__all__ = ["PAGE_BYTES", "rule"]

PAGE_BYTES = "page_bytes"
"""Key of the manifest's limits: bytes of a page of activation memory."""


def rule(view: View) -> list[Finding]:
    """Findings of P3."""
    found = Found("P3")
    _lanes(view, found)
    _pages(view, found)
    return found.all


def _lanes(view: View, found: Found) -> None:
    for worker in np.flatnonzero(view.workers[:, Worker.LANES] < 1):
        found(f"it has {view.workers[worker, Worker.LANES]} lanes", view.item("worker", worker))
    limits = view.limits
    if limits is None:
        return
    if len(view.devices) > limits.devices:
        found(f"the plan is for {len(view.devices)} devices, {limits.name} has {limits.devices}")
    lanes: Counter[tuple[int, int]] = Counter()
    for row in view.workers.tolist():
        lanes[row[Worker.DEVICE], row[Worker.WARP_ROLE]] += max(row[Worker.LANES], 0)
    for (device, role), total in sorted(lanes.items()):
        if total > limits.lanes:
            found(
                f"its {WarpRole(role).name} workers have {total} lanes, a device of {limits.name} has {limits.lanes}",
                view.item("device", device),
            )


def _pages(view: View, found: Found) -> None:
    for device in np.flatnonzero(view.devices[:, Device.PAGES] < 0):
        found(f"it has {view.devices[device, Device.PAGES]} pages", view.item("device", device))
    first, count = view.buffers[:, BufferRow.PAGE_FIRST], view.buffers[:, BufferRow.PAGE_COUNT]
    pages = view.devices[view.buffers[:, BufferRow.DEVICE], Device.PAGES]
    outside = (first < 0) | (count < 0) | (first + count > pages)
    for buffer in np.flatnonzero(outside):
        found(
            f"its pages are {count[buffer]} from {first[buffer]}, its device has {pages[buffer]}",
            view.item("buffer", buffer),
            view.item("device", view.buffers[buffer, BufferRow.DEVICE]),
        )
    paged = (count > 0) & ~outside
    for buffer in np.flatnonzero(paged & (view.buffers[:, BufferRow.KIND] != BufferKind.ACTIVATION)):
        found("it has pages and is no activation", view.item("buffer", buffer))
    size = view.plan.manifest.limits.get(PAGE_BYTES, 0)
    bits = np.array([dtype.bits for dtype in Dtype])[view.buffers[:, BufferRow.DTYPE]]
    bytes_ = np.ceil(view.buffers[:, BufferRow.ROWS] * view.buffers[:, BufferRow.COLS] * bits / 8)
    for buffer in np.flatnonzero(paged & (bytes_ > count * float(size))):
        found(
            f"its {bytes_[buffer]:.0f} bytes do not fit in {count[buffer]} pages of {size} (limits[{PAGE_BYTES!r}])",
            view.item("buffer", buffer),
        )
