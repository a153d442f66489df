"""Pass `place`: roles of the devices, and which device does which part of each operator.

Output spec (`require_placed`): every operator has a share somewhere; the shares of an operator that is split partition
its units; shares of one that is replicated are all whole; a share's device has a role that its operator is allowed on.

Matrices are split by output rows only and nothing is summed across devices, so that results do not depend on how many
devices there are. Heads go over the devices that attend, unevenly where they must; a projection that only heads read
is split as they are, so it needs no copy. What is small (norms, expert choice) is done wherever it is read.
"""

import dataclasses
from collections import defaultdict

from persistent_engine.compile.profile import DeviceProfile
from persistent_engine.manifest import OPERATORS, Operator, number
from persistent_engine.models import Graph, Node
from persistent_engine.plan import BufferKind, Role
from speedtier.errors import PlanError

__all__ = ["ACROSS", "Placement", "Share", "place", "require_placed"]

LEADERS = frozenset({"embed", "embed_drafted", "sample", "verify", "choose"})
"""Operators of the leading device: they turn registers into values and back."""

ACROSS: dict[str, tuple[str | None, ...]] = {
    "mla_attend_sparse_part": ("rows", None, None, "cols"),
    "mla_attend_part": ("rows", None, "cols"),
}
"""Operators whose range is tokens, that are split over devices by heads: the axis of each box that heads run along."""

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Share:
    """What a device does of an operator: units [rows) of its range. heads: those it does them for, when the range is
    not heads itself, of how many."""

    device: int
    rows: Range
    heads: tuple[int, int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Placement:
    """roles: by device. shares: by node of the graph; replicated: nodes that every share does whole."""

    roles: tuple[Role, ...]
    shares: list[list[Share]]
    replicated: frozenset[int]


def _operator(node: Node) -> Operator:
    return OPERATORS[number(node.operator)]


def written(node: Node) -> list[str]:
    """Buffers that a node writes."""
    marks = [argument.written for argument in _operator(node).arguments]
    return [box.buffer for box, mark in zip(node.boxes, marks, strict=True) if mark]


def _cut(count: int, devices: list[int]) -> list[tuple[int, Range]]:
    parts = [(d, (count * i // len(devices), count * (i + 1) // len(devices))) for i, d in enumerate(devices)]
    return [(device, rows) for device, rows in parts if rows[0] < rows[1]]


class _Placer:
    """Goes through the graph backwards, so that readers are placed before what they read."""

    def __init__(self, graph: Graph, profile: DeviceProfile) -> None:
        self.graph, self.profile = graph, profile
        indexed = any(_operator(node).device_roles == {Role.INDEXER} for node in graph.nodes)
        first = Role.INDEXER if indexed and profile.devices > 1 else Role.MLA
        self.roles = (first, *[Role.MLA] * (profile.devices - 1))
        self.readers: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(graph.nodes):
            outputs = set(written(node))
            for box in node.boxes:
                if box.buffer not in outputs:
                    self.readers[box.buffer].append(index)
        self.shares: list[list[Share]] = [[] for _ in graph.nodes]
        self.replicated: set[int] = set()

    def _allowed(self, node: Node) -> list[int]:
        roles = frozenset(self.roles)
        return [d for d, role in enumerate(self.roles) if _operator(node).allowed_on(role, roles)]

    def _demand(self, readers: list[int]) -> list[int]:
        return sorted({share.device for reader in readers for share in self.shares[reader]}) or [0]

    def _aligned(self, node: Node, readers: list[int]) -> list[Share] | None:
        """Shares of a projection whose only readers are cut along it, by heads or on the indexer's device."""
        (out,) = written(node)
        if not readers or not all(len(_operator(self.graph.nodes[r]).device_roles) == 1 for r in readers):
            return None
        if {share.device for r in readers for share in self.shares[r]} == {0} and self.roles[0] == Role.INDEXER:
            return [Share(0, (0, node.rows))]
        boxes = [box for r in readers for box in self.graph.nodes[r].boxes if box.buffer == out]
        if len(boxes) != 1 or boxes[0].split != "cols":
            return None
        step = boxes[0].step
        return [Share(s.device, (s.rows[0] * step, s.rows[1] * step)) for s in self.shares[readers[0]]]

    def _of(self, index: int) -> list[Share]:
        node = self.graph.nodes[index]
        outputs = written(node)
        readers = [reader for name in outputs for reader in self.readers[name]]
        if node.operator in LEADERS:
            return [Share(0, (0, node.rows))]
        allowed = self._allowed(node)
        state = any(self.graph.buffers[name].kind == BufferKind.STATE for name in outputs)
        if node.rows == 1 and node.operator not in ACROSS:
            devices = [d for d in self._demand([r for r in readers if r > index]) if d in allowed] or allowed[:1]
            if state and not self.profile.replicated:
                devices = devices[:1]
            if len(devices) > 1:
                self.replicated.add(index)
            return [Share(device, (0, 1)) for device in devices]
        if node.operator in ACROSS:
            heads = self.graph.buffers[node.boxes[0].buffer].rows
            return [Share(d, (0, node.rows), (*part, heads)) for d, part in _cut(heads, allowed)]
        if len(outputs) == 1 and (aligned := self._aligned(node, readers)) is not None:
            return aligned
        return [Share(device, rows) for device, rows in _cut(node.rows, allowed)]

    def run(self) -> Placement:
        for index in range(len(self.graph.nodes) - 1, -1, -1):
            self.shares[index] = self._of(index)
        return Placement(self.roles, self.shares, frozenset(self.replicated))


def place(graph: Graph, profile: DeviceProfile) -> Placement:
    """Roles and shares. On more than one device the first has the indexer, where the model has one."""
    return _Placer(graph, profile).run()


def require_placed(graph: Graph, placement: Placement) -> None:
    """Raise PlanError unless the pass's output spec holds."""
    roles = frozenset(placement.roles)
    for index, (node, shares) in enumerate(zip(graph.nodes, placement.shares, strict=True)):
        if not shares or len({share.device for share in shares}) != len(shares):
            raise PlanError(f"operator {node.label!r} has shares {shares}, wants one for each of its devices")
        for share in shares:
            if not _operator(node).allowed_on(placement.roles[share.device], roles):
                raise PlanError(f"operator {node.label!r} is on device {share.device}, whose role does not allow it")
        units = [share.heads[:2] if share.heads else share.rows for share in shares]
        total = shares[0].heads[2] if shares[0].heads else node.rows
        whole = all(part == (0, total) for part in units)
        cut = [0, *(part[1] for part in units)] == [*(part[0] for part in units), total]
        if not (whole if index in placement.replicated else cut):
            raise PlanError(f"operator {node.label!r} has parts {units} of {total}: some are missing or there twice")
