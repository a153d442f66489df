"""Pass `tile`: cut each device's share of an operator into tasks with exact argument boxes.

Output spec (`require_tiled`): the row ranges of a share's tasks partition it; every box lies in its buffer.
"""

import dataclasses

from persistent_engine.compile.knobs import Knobs
from persistent_engine.compile.place import ACROSS, Placement, Share
from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.manifest import OPERATORS, number
from persistent_engine.models import DRAFT, Box, Graph, Node
from persistent_engine.plan import Access, BufferKind
from speedtier.errors import PlanError

__all__ = ["Piece", "Region", "require_tiled", "tile"]

NOMINAL_CONTEXT = 512
"""Tokens that a scan over state is taken to read when its cost is estimated."""


@dataclasses.dataclass(frozen=True)
class Region:
    """A box of a buffer that a task reads or writes; half-open rows and columns. device: whose copy of the buffer."""

    buffer: str
    access: Access
    rows: tuple[int, int]
    cols: tuple[int, int]
    device: int = 0

    def overlaps(self, other: "Region") -> bool:
        """Whether both touch an element, if they are of one buffer."""
        return (
            self.rows[0] < other.rows[1]
            and other.rows[0] < self.rows[1]
            and self.cols[0] < other.cols[1]
            and other.cols[0] < self.cols[1]
        )


@dataclasses.dataclass(frozen=True)
class Piece:
    """A task before it has a worker. node: index in the graph; copies have numbers after the graph's. cost: bytes it
    reads. tiles: that it stands for."""

    operator: str
    label: str
    layer: int
    params: tuple[float, ...]
    node: int
    device: int
    rows: tuple[int, int]
    regions: tuple[Region, ...]
    cost: int
    tiles: int = 1


def _region(graph: Graph, box: Box, access: Access, rows: tuple[int, int], share: Share, heads: str | None) -> Region:
    buffer = graph.buffers[box.buffer]
    row_range = box.rows or (0, buffer.rows)
    col_range = box.cols or (0, buffer.cols)
    cut = (rows[0] * box.step, rows[1] * box.step)
    if box.split == "rows":
        row_range = cut
    elif box.split == "cols":
        col_range = cut
    if share.heads and heads:
        first, last, count = share.heads
        size = buffer.rows if heads == "rows" else buffer.cols
        part = (first * (size // count), last * (size // count))
        row_range, col_range = (part, col_range) if heads == "rows" else (row_range, part)
    return Region(box.buffer, access, row_range, col_range, share.device)


def _cost(graph: Graph, node: Node, regions: tuple[Region, ...], share: float) -> int:
    """Bytes read: weight boxes, the active part of expert stacks, a nominal context of state for each head."""
    total = 0.0
    for region in regions:
        buffer = graph.buffers[region.buffer]
        item = buffer.dtype.bits / 8
        rows, cols = region.rows[1] - region.rows[0], region.cols[1] - region.cols[0]
        if buffer.kind == BufferKind.STATE and region.access == Access.READ:
            total += min(rows, NOMINAL_CONTEXT) * cols * item * max(1, share * node.rows)
        elif node.operator.startswith("expert_") and len(buffer.sources) > 1:
            total += buffer.cols * item * share * node.rows
        elif node.operator == "embed" or buffer.name == "rope":
            total += cols * item
        else:
            total += rows * cols * item
    return int(total)


def _separate(node: Node, knobs: Knobs) -> int:
    """Tokens of a step that lanes can do side by side at no more reading: where a matrix is read, all share it."""
    if any(argument.dtypes == "matrix" for argument in OPERATORS[number(node.operator)].arguments):
        return 1
    return knobs.batch * (1 if node.label.startswith(DRAFT) else 1 + knobs.draft_depth)


def _pieces(graph: Graph, index: int, share: Share, count: int, lanes: int, tokens: int) -> list[Piece]:
    node = graph.nodes[index]
    marks = [argument.written for argument in OPERATORS[number(node.operator)].arguments]
    heads = ACROSS.get(node.operator, (None,) * len(node.boxes))
    first, size = share.rows[0], share.rows[1] - share.rows[0]
    pieces = []
    for part in range(count):
        rows = (first + size * part // count, first + size * (part + 1) // count)
        regions = tuple(
            _region(graph, box, Access.WRITE if mark else Access.READ, rows, share, axis)
            for box, mark, axis in zip(node.boxes, marks, heads, strict=True)
        )
        cost = _cost(graph, node, regions, (rows[1] - rows[0]) / node.rows)
        tiles = min(lanes, (rows[1] - rows[0]) * tokens)
        pieces.append(
            Piece(node.operator, node.label, node.layer, node.params, index, share.device, rows, regions, cost, tiles)
        )
    return pieces


def tile(graph: Graph, placement: Placement, profile: DeviceProfile, knobs: Knobs) -> list[Piece]:
    """Tasks in graph order.

    Where a worker has one lane, a share is split when each part still reads for much longer than a signal takes; else
    it is one task of as many tiles as there are lanes, if it has as many units; of what reads no matrix, each token of
    a step with several (a batch, a draft to verify) has units of its own.
    """
    smallest = 8 * profile.sync_s * profile.bytes_per_s
    result: list[Piece] = []
    for index, shares in enumerate(placement.shares):
        tokens = _separate(graph.nodes[index], knobs)
        for share in shares:
            (whole,) = _pieces(graph, index, share, 1, profile.lanes, tokens)
            most = min(share.rows[1] - share.rows[0], profile.workers * knobs.tiles_per_worker)
            wanted = min(most, max(1, int(whole.cost / smallest))) if profile.lanes == 1 else 1
            result += [whole] if wanted == 1 else _pieces(graph, index, share, wanted, profile.lanes, tokens)
    return result


def require_tiled(graph: Graph, placement: Placement, pieces: list[Piece]) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        found.setdefault((piece.node, piece.device), []).append(piece.rows)
        for region in piece.regions:
            buffer = graph.buffers[region.buffer]
            inside = region.rows[1] <= buffer.rows and region.cols[1] <= buffer.cols
            if not (inside and 0 <= region.rows[0] < region.rows[1] and 0 <= region.cols[0] < region.cols[1]):
                raise PlanError(f"task of {piece.label!r} has a box {region} that is not inside its buffer")
    for index, shares in enumerate(placement.shares):
        for share in shares:
            rows = found.pop((index, share.device), [])
            if [share.rows[0], *(r[1] for r in rows)] != [*(r[0] for r in rows), share.rows[1]]:
                raise PlanError(
                    f"tasks of {graph.nodes[index].label!r} have rows {rows}, which do not partition {share}"
                )
    if found:
        raise PlanError(f"tasks of (operator, device) {sorted(found)} have no share")
