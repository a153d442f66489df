"""Where a frame's bytes lie in a slot, for writers that put them there themselves.

Invariant: no frame is mapped outside the slot, or to another number of bytes than it has.
"""

from collections.abc import Iterator, Sequence

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes, plane_views
from tilert_connector.transport.announce import Place
from tilert_connector.transport.frame import Frame

__all__ = ["SlotMap"]


class SlotMap:
    """Raises WireError if the place is too small for what it says that it holds."""

    def __init__(self, layout: KvLayout, place: Place) -> None:
        if place.size < layout.slot_bytes(place.capacity):
            raise WireError(f"place of {place.size} bytes is less than {place.capacity} tokens need")
        self._layout = layout
        self._capacity = place.capacity
        self._offsets = layout.offsets(place.capacity)

    def check(self, frame: Frame, pieces: Sequence[memoryview]) -> None:
        """Raises WireError unless the frame lies in the slot and the pieces are as long as it."""
        planes = self._layout.planes[frame.plane_first : frame.plane_last]
        size = (frame.last - frame.first) * sum(plane.token_bytes for plane in planes)
        inside = 0 <= frame.first < frame.last <= self._capacity
        if not inside or not planes or len(planes) != frame.plane_last - frame.plane_first:
            raise WireError(f"{frame} leaves the slot")
        if not size == frame.size == sum(piece.nbytes for piece in pieces):
            raise WireError(f"{frame} has {size} bytes, its pieces {sum(piece.nbytes for piece in pieces)}")

    def views(self, memory: Bytes, frame: Frame) -> Iterator[Bytes]:
        """The frame's bytes in a mapped slot, in wire order; see `plane_views`."""
        for index in range(frame.plane_first, frame.plane_last):
            plane = self._layout.planes[index]
            yield from plane_views(memory[self._offsets[index] :], plane, frame.first, frame.last)

    def spans(self, frame: Frame) -> Iterator[tuple[int, int]]:
        """(offset in the slot, bytes), in wire order."""
        for index in range(frame.plane_first, frame.plane_last):
            for start, size in self._layout.planes[index].spans(frame.first, frame.last):
                yield self._offsets[index] + start, size
