"""A plan by hand, small and right, with all that a plan may have: two devices of different roles, warp roles, copies
between devices with credits, pages that are used twice, tiles, attention over chosen tokens in parts.
"""

from typing import Any

import numpy as np

from persistent_engine.manifest import OPERATORS, number
from persistent_engine.plan import TABLES, Access, BufferKind, Dtype, Manifest, Plan, Role, WarpRole

__all__ = ["two_devices"]

TOKENS, VOCABULARY, CHOSEN = 64, 16, 4
W, A, S = BufferKind.WEIGHT, BufferKind.ACTIVATION, BufferKind.STATE

# name: kind, rows, cols, device, first page, pages
BUFFERS: dict[str, tuple[Any, ...]] = {
    "table": (W, VOCABULARY, 8, 0, 0, 0),
    "rope.0": (W, TOKENS, 4, 0, 0, 0),
    "rope.1": (W, TOKENS, 4, 1, 0, 0),
    "norm.0": (W, 1, 4, 0, 0, 0),
    "norm.1": (W, 1, 8, 1, 0, 0),
    "q.weight": (W, 16, 8, 0, 0, 0),
    "kv_b": (W, 16, 4, 0, 0, 0),
    "out.weight": (W, 8, 8, 0, 0, 0),
    "head": (W, VOCABULARY, 8, 0, 0, 0),
    "heads.weight": (W, 1, 8, 1, 0, 0),
    "kv": (S, TOKENS, 8, 0, 0, 0),
    "index": (S, TOKENS, 8, 1, 0, 0),
    "x": (A, 1, 8, 0, 0, 1),
    "q": (A, 1, 16, 0, 1, 1),
    "absorbed": (A, 2, 8, 0, 2, 1),
    "parts": (A, 2, 12, 0, 3, 2),
    "context": (A, 2, 4, 0, 1, 1),  # where q was
    "values": (A, 1, 8, 0, 2, 1),  # where absorbed was
    "y": (A, 1, 8, 0, 3, 1),  # where parts was
    "logits": (A, 1, VOCABULARY, 0, 4, 1),
    "scratch": (A, 2, VOCABULARY, 0, 0, 0),
    "x.1": (A, 1, 8, 1, 0, 1),
    "query": (A, 1, 8, 1, 1, 1),
    "weights": (A, 1, 1, 1, 2, 1),
    "scores": (A, 1, TOKENS, 1, 3, 4),
    "ids.1": (A, 1, CHOSEN, 1, 7, 1),
    "ids": (A, 1, CHOSEN, 0, 5, 1),
}
INTEGERS = ("ids", "ids.1")

# worker: device, warp role, lanes
WORKERS = (
    (0, WarpRole.COMPUTE, 4),
    (0, WarpRole.COMPUTE, 4),
    (0, WarpRole.COMM, 2),
    (1, WarpRole.COMPUTE, 4),
    (1, WarpRole.COMM, 2),
)

Task = tuple[int, str, str, tuple[float, ...], tuple[int, int], tuple[Any, ...], tuple[Any, ...], tuple[str, ...]]
# worker, label, operator, params, rows, arguments (name or (name, box)), waits (event or (event, lag)), signals
TASKS: tuple[Task, ...] = (
    (0, "embed", "embed", (), (0, 1), ("table", ">x"), (), ("x",)),
    (2, "send x", "put", (), (0, 1), ("x", ">x.1"), ("x", ("x.1 used", 1)), ("x.1",)),
    (0, "store", "mla_store", (1e-6, 4, 4), (0, 1), ("x", "norm.0", "rope.0", ">kv"), (), ()),
    (0, "project", "matvec", (), (0, 16), ("q.weight", "x", ">q"), (), ()),
    (0, "absorb", "mla_query", (4, 4, 4, 4), (0, 2), ("q", "kv_b", "rope.0", ">absorbed"), (), ("absorbed",)),
    (3, "key", "index_store", (1e-6, 4, 0), (0, 1), ("x.1", "norm.1", "norm.1", "rope.1", ">index"), ("x.1",), ()),
    (3, "turn", "index_query", (4, 0), (0, 1), ("x.1", "rope.1", ">query"), (), ()),
    (3, "weigh", "matvec", (), (0, 1), ("heads.weight", "x.1", ">weights"), (), ("x.1 used",)),
    (3, "score", "index_scores", (1.0,), (0, 32), ("query", "weights", "index", (">scores", 0, 1, 0, 32)), (), ()),
    (3, "more", "index_scores", (1.0,), (32, 64), ("query", "weights", "index", (">scores", 0, 1, 32, 64)), (), ()),
    (3, "select", "index_select", (), (0, 1), ("scores", ">ids.1"), (), ("ids.1",)),
    (4, "send ids", "put", (), (0, 1), ("ids.1", ">ids"), ("ids.1",), ("ids",)),
    (0, "part", "mla_attend_sparse_part", (1.0, 4, 4, 2), (0, 1),
     ("absorbed", "kv", "ids", (">parts", 0, 1, 0, 12)), ("ids",), ("parts",)),
    (1, "rest", "mla_attend_sparse_part", (1.0, 4, 4, 2), (1, 2),
     ("absorbed", "kv", "ids", (">parts", 1, 2, 0, 12)), ("absorbed", "ids"), ("parts",)),
    (0, "combine", "mla_combine", (4,), (0, 2), ("parts", ">context"), ("parts",), ()),
    (0, "value", "mla_value", (4, 4, 4), (0, 2), ("context", "kv_b", ">values"), (), ()),
    (0, "output", "matvec_add", (), (0, 8), ("out.weight", "values", "x", ">y"), (), ()),
    (0, "head", "matvec", (), (0, VOCABULARY), ("head", "y", ">logits"), (), ()),
    (0, "sample", "sample", (), (0, 1), ("logits", ">scratch"), (), ()),
)  # fmt: skip


def two_devices() -> Plan:
    """The plan."""
    buffers, names = list(BUFFERS), list(dict.fromkeys([*BUFFERS, *(task[1] for task in TASKS), "main", "indexer"]))
    producers: dict[str, int] = {}
    for task in TASKS:
        for event in task[7]:
            producers[event] = producers.get(event, 0) + 1
    names += [event for event in producers if event not in names]
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in TABLES}
    rows["devices"] = [(Role.MLA, 6, names.index("main")), (Role.INDEXER, 8, names.index("indexer"))]
    for name, (kind, height, width, device, page, pages) in BUFFERS.items():
        dtype = Dtype.I32 if name in INTEGERS else Dtype.F32
        rows["buffers"].append((kind, dtype, height, width, names.index(name), device, page, pages))
    events = list(producers)
    rows["events"] = [(count, names.index(event), 0) for event, count in producers.items()]
    for worker, (device, role, lanes) in enumerate(WORKERS):
        queue = [task for task in TASKS if task[0] == worker]
        rows["workers"].append((device, len(rows["tasks"]), len(queue), role, lanes))
        for _, label, operator, params, extent, args, waits, signals in queue:
            ranges: list[int] = []
            for table, added in (
                ("waits", [_wait(events, producers, one) for one in waits]),
                ("signals", [(events.index(one),) for one in signals]),
                ("args", [_arg(buffers, one) for one in args]),
                ("params", [(one,) for one in params]),
            ):
                ranges += [len(rows[table]), len(added)]
                rows[table] += added
            row = (number(operator), worker, *ranges, *extent, names.index(label), 0, device, 1)
            rows["tasks"].append(row)
    manifest = Manifest(
        model="by hand",
        device="two",
        capacity=TOKENS,
        operators=tuple(one.name for one in OPERATORS),
        names=tuple(names),
        weights={name: (name,) for name, row in BUFFERS.items() if row[0] == W},
        limits={"page_bytes": 64, "index_topk": CHOSEN},
        bucket=(1, TOKENS),
    )
    return Plan(manifest, **{n: np.array(rows[n], dtype=d).reshape(-1, w) for n, (d, w) in TABLES.items()})


def _wait(events: list[str], producers: dict[str, int], wait: Any) -> tuple[int, int, int]:
    event, lag = wait if isinstance(wait, tuple) else (wait, 0)
    return events.index(event), producers[event], lag


def _arg(buffers: list[str], arg: Any) -> tuple[int, ...]:
    name, *box = arg if isinstance(arg, tuple) else (arg,)
    buffer = name.removeprefix(">")
    access = Access.WRITE if name != buffer else Access.READ
    return (buffers.index(buffer), access, *(box or (0, BUFFERS[buffer][1], 0, BUFFERS[buffer][2])))
