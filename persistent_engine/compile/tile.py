"""Pass `tile`: cut each node into tasks with exact argument boxes.

Output spec: the row ranges of a node's tasks partition [0, node.rows); every box lies in its buffer.
"""

import dataclasses

from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.manifest import OPERATORS, number
from persistent_engine.models import Box, Graph, Node
from persistent_engine.plan import Access, BufferKind

__all__ = ["Piece", "Region", "tile"]

NOMINAL_CONTEXT = 512
"""Tokens that a scan over state is taken to read when its cost is estimated."""


@dataclasses.dataclass(frozen=True)
class Region:
    """A box of a buffer that a task reads or writes; half-open rows and columns."""

    buffer: str
    access: Access
    rows: tuple[int, int]
    cols: tuple[int, int]

    def overlaps(self, other: "Region") -> bool:
        """Whether both touch an element."""
        return (
            self.buffer == other.buffer
            and self.rows[0] < other.rows[1]
            and other.rows[0] < self.rows[1]
            and self.cols[0] < other.cols[1]
            and other.cols[0] < self.cols[1]
        )


@dataclasses.dataclass(frozen=True)
class Piece:
    """A task before it has a worker. node: index in the graph. cost: bytes it reads."""

    node: int
    rows: tuple[int, int]
    regions: tuple[Region, ...]
    cost: int


def _region(graph: Graph, box: Box, access: Access, rows: tuple[int, int]) -> Region:
    buffer = graph.buffers[box.buffer]
    row_range = box.rows or (0, buffer.rows)
    col_range = box.cols or (0, buffer.cols)
    cut = (rows[0] * box.step, rows[1] * box.step)
    if box.split == "rows":
        row_range = cut
    elif box.split == "cols":
        col_range = cut
    return Region(box.buffer, access, row_range, col_range)


def _cost(graph: Graph, node: Node, regions: tuple[Region, ...], share: float) -> int:
    """Bytes read: weight boxes, the active part of expert stacks, a nominal context of state for each head."""
    total = 0.0
    for region in regions:
        buffer = graph.buffers[region.buffer]
        rows, cols = region.rows[1] - region.rows[0], region.cols[1] - region.cols[0]
        if buffer.kind == BufferKind.STATE and region.access == Access.READ:
            total += min(rows, NOMINAL_CONTEXT) * cols * buffer.dtype.item * max(1, share * node.rows)
        elif node.operator.startswith("expert_") and len(buffer.sources) > 1:
            total += buffer.cols * buffer.dtype.item * share * node.rows
        elif node.operator == "embed" or buffer.name == "rope":
            total += cols * buffer.dtype.item
        else:
            total += rows * cols * buffer.dtype.item
    return int(total)


def _pieces(graph: Graph, index: int, count: int) -> list[Piece]:
    node = graph.nodes[index]
    marks = [arg.startswith(">") for arg in OPERATORS[number(node.operator)].args]
    pieces = []
    for part in range(count):
        rows = (node.rows * part // count, node.rows * (part + 1) // count)
        regions = tuple(
            _region(graph, box, Access.WRITE if mark else Access.READ, rows)
            for box, mark in zip(node.boxes, marks, strict=True)
        )
        share = (rows[1] - rows[0]) / node.rows
        pieces.append(Piece(index, rows, regions, _cost(graph, node, regions, share)))
    return pieces


def tile(graph: Graph, profile: DeviceProfile, tiles_per_worker: int = 1) -> list[Piece]:
    """Tasks in graph order. A node is split when each part still reads for much longer than a signal takes."""
    smallest = 8 * profile.sync_s * profile.bytes_per_s
    result: list[Piece] = []
    for index, node in enumerate(graph.nodes):
        (whole,) = _pieces(graph, index, 1)
        wanted = min(node.rows, profile.workers * tiles_per_worker, max(1, int(whole.cost / smallest)))
        result += [whole] if wanted == 1 else _pieces(graph, index, wanted)
    return result
