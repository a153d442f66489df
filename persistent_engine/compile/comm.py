"""Pass `comm`: give every device buffers of its own, and copy between them what is read where it is not written.

Output spec (`require_local`): a task touches buffers of its own device, except what copies write; every activation of
a device is written whole, each element once. A device's buffer is as large as the part of it that the device has:
boxes are relative to that. Copies stand after the tasks of the operator whose result they move.
"""

import dataclasses
from collections import defaultdict

from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.compile.tile import Piece, Region
from persistent_engine.models import Buffer, Graph
from persistent_engine.plan import Access, BufferKind
from speedtier.errors import PlanError

__all__ = ["LocalBuffer", "localise", "require_local"]

Rect = tuple[int, int, int, int]
"""Rows and columns, half open."""


@dataclasses.dataclass(frozen=True)
class LocalBuffer:
    """A device's copy or part of a buffer of the graph. rect: which part. name: with the device where there are more
    than one, but for planes that all share, which are called as in the slot."""

    buffer: Buffer
    device: int
    rect: Rect
    name: str

    @property
    def rows(self) -> int:
        """Of the part."""
        return self.rect[1] - self.rect[0]

    @property
    def cols(self) -> int:
        """Of the part."""
        return self.rect[3] - self.rect[2]

    @property
    def is_part(self) -> bool:
        """Whether the device has less than the whole."""
        return (self.rows, self.cols) != (self.buffer.rows, self.buffer.cols)

    @property
    def origin(self) -> tuple[int, int]:
        """Row and column of the whole at which the part begins."""
        return self.rect[0], self.rect[2]


def _rect(region: Region) -> Rect:
    return (*region.rows, *region.cols)


def _bound(rects: list[Rect]) -> Rect:
    low, high, left, right = zip(*rects, strict=True)
    return min(low), max(high), min(left), max(right)


def _meet(one: Rect, other: Rect) -> Rect | None:
    rect = max(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), min(one[3], other[3])
    return rect if rect[0] < rect[1] and rect[2] < rect[3] else None


def _area(rect: Rect | None) -> int:
    return 0 if rect is None else (rect[1] - rect[0]) * (rect[3] - rect[2])


@dataclasses.dataclass(frozen=True)
class _Copy:
    """Part of a buffer that one device sends to another."""

    source: int
    target: int
    rect: Rect


class _Uses:
    """Who reads and writes an activation, by device."""

    def __init__(self) -> None:
        self.written: dict[int, list[Rect]] = defaultdict(list)
        self.read: dict[int, list[Rect]] = defaultdict(list)
        self.node = -1

    def copies(self) -> list[_Copy]:
        """What each reading device lacks."""
        result = []
        for target in sorted(self.read):
            own = self.written.get(target, [])
            need = _bound(self.read[target])
            if sum(_area(_meet(need, rect)) for rect in own) >= _area(need):
                continue
            need = _bound([need, *own])
            for source in sorted(self.written):
                rect = _meet(_bound(self.written[source]), need)
                if source != target and rect is not None:
                    result.append(_Copy(source, target, rect))
        return result


def _uses(graph: Graph, pieces: list[Piece]) -> dict[str, _Uses]:
    uses: dict[str, _Uses] = defaultdict(_Uses)
    for piece in pieces:
        for region in piece.regions:
            if graph.buffers[region.buffer].kind == BufferKind.ACTIVATION:
                use = uses[region.buffer]
                by_device = use.written if region.access == Access.WRITE else use.read
                by_device[piece.device].append(_rect(region))
                if region.access == Access.WRITE:
                    use.node = piece.node
    return uses


def _send(graph: Graph, name: str, node: int, copies: list[_Copy], many: bool) -> list[Piece]:
    """Tasks that send one box to one device, or (many) to all devices that want it."""
    buffer, found = graph.buffers[name], graph.nodes[node]
    packs: dict[tuple[int, Rect, int], list[int]] = {}
    for copy in copies:
        packs.setdefault((copy.source, copy.rect, -1 if many else copy.target), []).append(copy.target)
    sources = {copy.source for copy in copies}
    result = []
    for (source, rect, _), targets in packs.items():
        operator = "put" if len(targets) == 1 else "broadcast" if len(sources) == 1 else "all_gather"
        regions = [Region(name, Access.READ, rect[:2], rect[2:], source)]
        regions += [Region(name, Access.WRITE, rect[:2], rect[2:], target) for target in targets]
        cost = int(_area(rect) * buffer.dtype.bits / 8) * len(targets)
        number = len(graph.nodes) + node
        result.append(
            Piece(operator, f"{found.label}.{operator}", found.layer, (), number, source, (0, 1), tuple(regions), cost)
        )
    return result


def _local_rects(graph: Graph, pieces: list[Piece]) -> dict[tuple[str, int], Rect]:
    """The part of each buffer that each device has. Weights: what it reads, by whole rows, whole if put together from
    several tensors. State planes: whole."""
    rects: dict[tuple[str, int], list[Rect]] = defaultdict(list)
    for piece in pieces:
        for region in piece.regions:
            rects[region.buffer, region.device].append(_rect(region))
    result = {}
    for (name, device), parts in rects.items():
        buffer, rect = graph.buffers[name], _bound(parts)
        whole = buffer.kind == BufferKind.STATE or (buffer.kind == BufferKind.WEIGHT and len(buffer.sources) > 1)
        if whole:
            rect = (0, buffer.rows, 0, buffer.cols)
        elif buffer.kind == BufferKind.WEIGHT:
            rect = (rect[0], rect[1], 0, buffer.cols)
        result[name, device] = rect
    return result


def localise(graph: Graph, pieces: list[Piece], profile: DeviceProfile) -> tuple[list[Piece], list[LocalBuffer]]:
    """Tasks with boxes of their devices' buffers, copies among them, and the buffers in the graph's order.

    A copy goes to one device each (`put`) where a worker has one lane; else to all that want it at once.
    """
    copies: dict[int, list[Piece]] = defaultdict(list)
    for name, use in _uses(graph, pieces).items():
        if found := use.copies():
            copies[use.node] += _send(graph, name, use.node, found, profile.lanes > 1)
    ordered: list[Piece] = []
    for index, piece in enumerate(pieces):
        ordered.append(piece)
        if index + 1 == len(pieces) or pieces[index + 1].node != piece.node:
            ordered += copies[piece.node]
    rects = _local_rects(graph, ordered)
    places = {name: place for place, name in enumerate(graph.buffers)}
    buffers = []
    for name, device in sorted(rects, key=lambda key: (places[key[0]], key[1])):
        buffer = graph.buffers[name]
        shared = buffer.kind == BufferKind.STATE and not profile.replicated  # planes of one name are one memory
        suffixed = profile.devices > 1 and not shared
        buffers.append(LocalBuffer(buffer, device, rects[name, device], f"{name}@{device}" if suffixed else name))

    def moved(region: Region) -> Region:
        top, _, left, _ = rects[region.buffer, region.device]
        rows, cols = region.rows, region.cols
        return Region(
            region.buffer,
            region.access,
            (rows[0] - top, rows[1] - top),
            (cols[0] - left, cols[1] - left),
            region.device,
        )

    return [dataclasses.replace(p, regions=tuple(map(moved, p.regions))) for p in ordered], buffers


def require_local(pieces: list[Piece], buffers: list[LocalBuffer]) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    sizes = {(b.buffer.name, b.device): b.rows * b.cols for b in buffers if b.buffer.kind == BufferKind.ACTIVATION}
    copies = ("put", "broadcast", "all_gather")
    for piece in pieces:
        for region in piece.regions:
            if region.device != piece.device and not (piece.operator in copies and region.access == Access.WRITE):
                raise PlanError(f"task of {piece.label!r} on device {piece.device} touches {region}")
            if region.access == Access.WRITE and (region.buffer, region.device) in sizes:
                sizes[region.buffer, region.device] -= _area(_rect(region))
    for (name, device), left in sizes.items():
        if left:
            raise PlanError(f"of {name!r} on device {device}, {left} elements are not written (below 0: written twice)")
