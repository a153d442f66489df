"""Weight buffers: the checkpoint's tensors laid into one aligned arena, as a plan wants them.

Invariant: matrices keep the plan's dtype, vectors are float32 (a bfloat16 vector widens exactly).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from persistent_engine.manifest import from_float, to_float
from persistent_engine.models.tensors import Tensors
from persistent_engine.plan import BufferKind, BufferRow, Dtype, Plan
from speedtier.errors import PlanError

__all__ = ["load_weights", "rope_table"]


def rope_table(theta: float, positions: int, width: int) -> np.ndarray:
    """[positions, width] float32: cosines, then sines, rounded where vLLM rounds.

    Source: vllm/model_executor/layers/rotary_embedding/base.py (`_compute_cos_sin_cache`, float32 throughout).
    """
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    inverse = np.float32(1.0) / np.power(np.float32(theta), exponents)
    angles = np.outer(np.arange(positions, dtype=np.float32), inverse)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def _fill(target: np.ndarray, source: str, tensors: Tensors, at: int) -> int:
    """Write what `target` has of one source; gives the source's rows. Its first row belongs at row `at` of `target`,
    below 0 when that is before the part of it that `target` holds."""
    if source.startswith("rope:"):
        rows = int(target.shape[0]) - at
        target[:] = rope_table(float(source.removeprefix("rope:")), rows, target.shape[1])[-at:]
        return rows
    tensor = tensors[source]
    tensor = tensor.reshape(1, -1) if tensor.ndim == 1 else tensor
    if tensor.shape[1] != target.shape[1]:
        raise PlanError(f"tensor {source!r} has shape {tensor.shape}, the plan wants [.., {target.shape[1]}]")
    first, last = max(0, -at), min(len(tensor), len(target) - at)
    if first < last:
        part, place = tensor[first:last], target[at + first : at + last]
        place[:] = part if tensor.dtype == target.dtype else from_float(to_float(part), target.dtype)
    return len(tensor)


def load_weights(
    plan: Plan, directory: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[int, np.ndarray]:
    """Buffer number -> array [rows, cols] (float32, or bfloat16 as uint16), all in one 64-byte aligned allocation.

    progress(bytes done, bytes in total) is called after each buffer.
    Raises: PlanError when a tensor is missing or of the wrong shape.
    """
    tensors = Tensors(directory)
    numbers = [n for n, row in enumerate(plan.buffers) if row[BufferRow.KIND] == BufferKind.WEIGHT]
    sizes = []
    for number in numbers:
        row = plan.buffers[number]
        item = Dtype(int(row[BufferRow.DTYPE])).item
        sizes.append(-(-int(row[BufferRow.ROWS]) * int(row[BufferRow.COLS]) * item // 64) * 64)
    total, done = sum(sizes), 0
    arena = np.empty(total + 64, dtype=np.uint8)
    arena = arena[-arena.ctypes.data % 64 :]
    weights = {}
    for number, size in zip(numbers, sizes, strict=True):
        row = plan.buffers[number]
        name, shape = plan.manifest.names[row[BufferRow.NAME]], (row[BufferRow.ROWS], row[BufferRow.COLS])
        dtype = Dtype(int(row[BufferRow.DTYPE])).numpy
        target = arena[done : done + int(shape[0]) * int(shape[1]) * dtype.itemsize].view(dtype).reshape(shape)
        part = name in plan.manifest.origins
        at = -plan.manifest.origins[name][0] if part else 0
        for source in plan.manifest.weights[name]:
            at += _fill(target, source, tensors, at)
        if at < len(target) or (at > len(target) and not part):
            raise PlanError(f"weight {name!r} got {at} rows from the checkpoint, the plan wants {len(target)}")
        weights[number] = target
        done += size
        progress(done, total)
    return weights
