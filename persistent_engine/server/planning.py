"""The plan that a node runs: read from a file or compiled, and checked either way.

Invariant: nothing comes from here without a certificate, and a plan that is read does what one that is compiled for the
same model does.
"""

from pathlib import Path

import numpy as np

from persistent_engine.check import Certificate, certificate, load_certificate, verify
from persistent_engine.compile import compile_plan, this_cpu
from persistent_engine.models import MlaFacts, ModelFacts
from persistent_engine.plan import BufferKind, BufferRow, Dtype, Plan, Task, decode, encode
from persistent_engine.server.config import DecodeConfig
from speedtier.errors import PlanError

__all__ = ["BESIDE", "open_plan"]

BESIDE = ".certificate"
"""What follows a plan file's name in that of its certificate."""

BYTES_WORTH_A_WORKER = 8 << 20
"""Weights that make another worker worth its waiting: below, one core reads them from its caches."""
BYTES_WORTH_ALL_CORES = 256 << 20
"""Weights that make the event loop's core worth taking too: a step is then so long that HTTP hardly competes. Below,
sharing it doubles the time of a token (measured with 24 MB of weights on two cores)."""


def _compile(config: DecodeConfig, facts: ModelFacts, dtype: Dtype, capacity: int) -> Plan:
    def compiled(workers: int) -> Plan:
        return compile_plan(
            facts,
            this_cpu(workers),
            capacity=capacity,
            tile_tokens=config.block_size if not isinstance(facts.attention, MlaFacts) else 1,
            state_dtype=dtype,
            policy=config.policy,
        )

    if config.workers:
        return compiled(config.workers)
    plan = compiled(1)
    rows = plan.buffers[plan.buffers[:, BufferRow.KIND] == BufferKind.WEIGHT].astype(np.int64)
    size = int((rows[:, BufferRow.ROWS] * rows[:, BufferRow.COLS]).sum()) * dtype.item
    cores = this_cpu().workers if size >= BYTES_WORTH_ALL_CORES else max(1, this_cpu().workers - 1)
    workers = min(cores, 1 + size // BYTES_WORTH_A_WORKER)
    return plan if workers == 1 else compiled(workers)


def _whole(name: str) -> str:
    """Name of a buffer without its device."""
    return name.partition("@")[0]


def _traits(plan: Plan) -> dict[str, object]:
    """What plans of one model have in common, however they are cut and placed."""
    manifest = plan.manifest
    state = plan.buffers[plan.buffers[:, BufferRow.KIND] == BufferKind.STATE]
    columns = (BufferRow.NAME, BufferRow.DTYPE, BufferRow.COLS)
    planes = {(_whole(manifest.names[name]), dtype, cols) for name, dtype, cols in state[:, columns].tolist()}
    work = set()
    for row in plan.tasks.tolist():
        params = plan.params[row[Task.PARAM_FIRST] : row[Task.PARAM_FIRST] + row[Task.PARAM_COUNT], 0]
        if params.size:
            work.add((manifest.operators[row[Task.OPERATOR]], row[Task.LAYER], tuple(params.tolist())))
    return {
        "model": manifest.model,
        "vocabulary": manifest.limits.get("vocabulary"),
        "tile_tokens": manifest.limits.get("tile_tokens"),
        "weights": {_whole(name): sources for name, sources in manifest.weights.items()},
        "planes": planes,
        "parameters": work,
    }


def _require_fit(path: Path, given: Plan, wanted: Plan) -> None:
    """Raise PlanError unless `given` decodes the model that `wanted` is compiled for, as far."""
    ours = _traits(wanted)
    for trait, value in _traits(given).items():
        if value != ours[trait]:
            raise PlanError(f"plan {path} does not fit the model: its {trait} differ; compile it for this model")
    room, needed = given.manifest.limits.get("capacity", 0), wanted.manifest.limits["capacity"]
    if min(room, given.manifest.capacity) < needed:
        raise PlanError(f"plan {path} is for {room} tokens, max_tokens is {needed}; lower it or compile a longer plan")


def open_plan(config: DecodeConfig, facts: ModelFacts, dtype: Dtype, capacity: int) -> tuple[Plan, Certificate]:
    """The plan of `config.plan`, if that file is there; else one that is compiled, and written there if it is named.

    Raises: PlanError for a plan that does not fit the model, or has no certificate of its own beside it.
    """
    compiled = _compile(config, facts, dtype, capacity)
    path = Path(config.plan)
    if not config.plan or not path.exists():
        data = encode(compiled)
        made = certificate(data)
        if config.plan:
            path.write_bytes(data)
            path.with_name(path.name + BESIDE).write_bytes(made.to_bytes())
        return compiled, made
    plan = decode(path.read_bytes())
    beside = path.with_name(path.name + BESIDE)
    if not beside.exists():
        raise PlanError(f"plan {path} has no certificate {beside.name} beside it; run `speedtier plan check` on it")
    found = load_certificate(beside.read_bytes())
    verify(plan, found)
    _require_fit(path, plan, compiled)
    return plan, found
