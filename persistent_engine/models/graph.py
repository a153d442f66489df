"""Graph: the operators of one decode step, before they are cut into tasks. Every activation is written by one operator.

Invariant: single assignment. A buffer is written once (state planes: one row a step), so order follows from data alone.
"""

import dataclasses
from typing import Literal

from persistent_engine.plan import BufferKind, Dtype

__all__ = ["Box", "Buffer", "Graph", "Node"]

Axis = Literal["rows", "cols", None]


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A 2-D array. sources: checkpoint tensors stacked by rows, or one `rope:<theta>` table."""

    name: str
    kind: BufferKind
    dtype: Dtype
    rows: int
    cols: int
    sources: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Box:
    """How a node uses a buffer. The `split` axis follows the node's rows, `step` elements a row."""

    buffer: str
    split: Axis = None
    step: int = 1
    rows: tuple[int, int] | None = None
    cols: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Node:
    """One operator application. rows: units it may be split into."""

    operator: str
    label: str
    layer: int
    boxes: tuple[Box, ...]
    params: tuple[float, ...] = ()
    rows: int = 1


@dataclasses.dataclass
class Graph:
    """Nodes in program order and the buffers they name. kept_dtype: of the matrices that quantised checkpoints leave
    alone (embedding, head, router); default as the others."""

    model: str
    capacity: int
    weight_dtype: Dtype
    state_dtype: Dtype
    kept_dtype: Dtype | None = None
    buffers: dict[str, Buffer] = dataclasses.field(default_factory=dict)
    nodes: list[Node] = dataclasses.field(default_factory=list)

    def activation(self, name: str, cols: int, rows: int = 1, dtype: Dtype = Dtype.F32) -> str:
        """Declare a per-step buffer; gives its name."""
        return self._declare(Buffer(name, BufferKind.ACTIVATION, dtype, rows, cols))

    def weight(self, name: str, rows: int, cols: int, *sources: str, kept: bool = False) -> str:
        """Declare a matrix of the checkpoint, in the checkpoint's dtype. kept: one that is not quantised."""
        dtype = self.kept_dtype if kept and self.kept_dtype is not None else self.weight_dtype
        return self._declare(Buffer(name, BufferKind.WEIGHT, dtype, rows, cols, sources or (name,)))

    def vector(self, name: str, cols: int, *sources: str) -> str:
        """Declare a vector of the checkpoint (norm weight, bias); float32 whatever the checkpoint's dtype."""
        return self._declare(Buffer(name, BufferKind.WEIGHT, Dtype.F32, 1, cols, sources or (name,)))

    def rope(self, theta: float, width: int) -> str:
        """Declare the table of cosines then sines, [capacity, width], float32."""
        source = f"rope:{theta!r}"
        return self._declare(Buffer("rope", BufferKind.WEIGHT, Dtype.F32, self.capacity, width, (source,)))

    def state(self, name: str, width: int) -> str:
        """Declare a plane of the slot; the name is the plane's name in the KvLayout."""
        return self._declare(Buffer(name, BufferKind.STATE, self.state_dtype, self.capacity, width))

    def carried(self, name: str, cols: int, dtype: Dtype) -> str:
        """Declare a row that one step leaves for the next."""
        return self._declare(Buffer(name, BufferKind.STATE, dtype, 1, cols))

    def add(
        self, operator: str, label: str, layer: int, *boxes: Box, params: tuple[float, ...] = (), rows: int = 1
    ) -> None:
        """Append a node."""
        self.nodes.append(Node(operator, label, layer, boxes, params, rows))

    def _declare(self, buffer: Buffer) -> str:
        known = self.buffers.setdefault(buffer.name, buffer)
        if known != buffer:
            raise ValueError(f"buffer {buffer.name!r} is declared twice, as {known} and as {buffer}")
        return buffer.name
