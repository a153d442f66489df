"""Roofline: the bytes and flops that one decode step cannot do without, and the limit that a machine's rates set.

Counted: weights that are read (chosen experts only, one row of the embedding, the head), and apart from them the state
that attention and indexer read. Not counted: activations, communication, waiting. So a limit, not a prediction.
"""

import dataclasses
from collections import defaultdict

from persistent_engine.devices import DeviceSheet
from persistent_engine.manifest import OPERATORS, Workload, cost, number
from persistent_engine.models import DRAFT, Box, Graph, ModelFacts, Node, build_graph
from persistent_engine.plan import BufferKind, Dtype

__all__ = ["Need", "needs", "step_needs", "tokens_per_s"]

_KEY_TILE = 128
"""Tokens of a transposed key tile; no byte depends on it."""


@dataclasses.dataclass(frozen=True)
class Need:
    """What an operator's nodes need in one step. count: how many nodes. Bytes: read from memory, all devices."""

    count: int = 0
    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    flops: float = 0.0

    def __add__(self, other: "Need") -> "Need":
        """Both."""
        return Need(
            self.count + other.count,
            self.weight_bytes + other.weight_bytes,
            self.state_bytes + other.state_bytes,
            self.flops + other.flops,
        )


def _box(graph: Graph, node: Node, box: Box) -> tuple[int, int, int, int]:
    """What the whole node touches of a buffer."""
    buffer, cut = graph.buffers[box.buffer], (0, node.rows * box.step)
    rows = cut if box.split == "rows" else box.rows or (0, buffer.rows)
    cols = cut if box.split == "cols" else box.cols or (0, buffer.cols)
    return (*rows, *cols)


def _node(graph: Graph, node: Node, workload: Workload) -> Need:
    operator = OPERATORS[number(node.operator)]
    buffers = [graph.buffers[box.buffer] for box in node.boxes]
    if node.label.startswith(DRAFT):
        workload = Workload(workload.context, workload.batch, 1)
    found = cost(
        operator,
        [_box(graph, node, box) for box in node.boxes],
        [buffer.dtype for buffer in buffers],
        node.params,
        (0, node.rows),
        workload,
    )
    sizes = {BufferKind.WEIGHT: 0.0, BufferKind.STATE: 0.0, BufferKind.ACTIVATION: 0.0}
    for buffer, size, written in zip(buffers, found.bytes, found.written, strict=True):
        sizes[buffer.kind] += 0.0 if written else size
    return Need(1, sizes[BufferKind.WEIGHT], sizes[BufferKind.STATE], found.flops)


def step_needs(graph: Graph, workload: Workload) -> dict[str, Need]:
    """Operator -> need of all its nodes, in the order in which the graph first has them."""
    result: dict[str, Need] = defaultdict(Need)
    for node in graph.nodes:
        result[node.operator] += _node(graph, node, workload)
    return dict(result)


def needs(
    facts: ModelFacts,
    dtype: Dtype,
    workload: Workload,
    *,
    kept_dtype: Dtype | None = None,
    state_dtype: Dtype = Dtype.BF16,
    draft_depth: int = 0,
) -> dict[str, Need]:
    """`step_needs` of a model. dtype: of matrices; kept_dtype: of embedding, head and router, default the same.

    Raises: PlanError for drafts that the model has no layer for.
    """
    capacity = -(-workload.context // _KEY_TILE) * _KEY_TILE
    graph = build_graph(
        facts,
        capacity,
        _KEY_TILE,
        state_dtype,
        weight_dtype=dtype,
        kept_dtype=dtype if kept_dtype is None else kept_dtype,
        draft_depth=draft_depth,
    )
    return step_needs(graph, workload)


def tokens_per_s(need: Need, dtype: Dtype, sheet: DeviceSheet, workload: Workload, *, state: bool = True) -> float:
    """The limit of all requests together: bytes at the data sheet's rate, or flops if these take longer.

    state: whether state counts. Attained rates are the data sheet's times its calibration; see `DeviceSheet`.
    """
    read = (need.weight_bytes + need.state_bytes * state) / sheet.datasheet_bytes_per_s
    return workload.batch * workload.tokens / max(read, need.flops / sheet.flops_per_s(dtype))
