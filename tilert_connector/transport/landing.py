"""One grant's way into slot memory: checks a frame before a byte lands and keeps what has landed.

Invariant: `views` hands out memory only for a frame of the granted generation, planes and tokens that
continues each plane exactly where it ended, or starts it within what the slot holds. No input or output
here; every transport shares it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes, plane_views
from tilert_connector.transport.base import Grant
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.frame import Frame, pack_header

__all__ = ["Landing"]

BLOT = 1 << 18


class Landing:
    """What one grant has written. `memory`: the slot, uint8[layout.slot_bytes(capacity)]."""

    def __init__(self, grant: Grant, layout: KvLayout, memory: Bytes, capacity: int) -> None:
        self.grant = grant
        self.landed_bytes = 0
        self._layout = layout
        self._memory = memory
        self._offsets = layout.offsets(capacity)
        # None: nothing of this plane yet; it may start anywhere that is held.
        self._next: dict[int, int | None] = {i: None for start, stop in grant.planes for i in range(start, stop)}
        self._missing = len(self._next)
        self._frames = 0

    @property
    def complete(self) -> bool:
        """Whether every granted plane is there to its last token."""
        return self._missing == 0

    def views(self, index: int, generation: int, frame: Frame) -> Sequence[Bytes]:
        """Where the frame's bytes go, in wire order. Raises WireError if it must not land."""
        if generation != self.grant.generation:
            raise WireError(f"frame of generation {generation}, granted is {self.grant.generation}")
        if index != self._frames:
            raise WireError(f"frame number {index}, expected {self._frames}")
        if not 0 <= frame.first < frame.last <= self.grant.tokens:
            raise WireError(f"frame of tokens [{frame.first}, {frame.last}) leaves the {self.grant.tokens} granted")
        if frame.plane_first >= frame.plane_last:
            raise WireError(f"frame of no plane: [{frame.plane_first}, {frame.plane_last})")
        size = 0
        for plane in range(frame.plane_first, frame.plane_last):
            if plane not in self._next:
                raise WireError(f"frame of plane {plane}, which was not granted")
            expected = self._next[plane]
            if expected is None:
                expected = min(frame.first, self.grant.held)
            if expected != frame.first:
                raise WireError(f"frame starts plane {plane} at token {frame.first}, expected {expected}")
            size += (frame.last - frame.first) * self._layout.planes[plane].token_bytes
        if size != frame.size:
            raise WireError(f"frame says {frame.size} bytes, its planes and tokens have {size}")
        return list(self._views(frame))

    def digest(self, frame: Frame) -> "xxhash.xxh3_64":
        """The next frame's checksum, before its bytes."""
        return begin_checksum(pack_header(self._frames, self.grant.generation, frame))

    def fits(self, frame: Frame, views: Sequence[Bytes], checksum: int) -> bool:
        """Whether the bytes in `views` are the ones that the writer had."""
        digest = self.digest(frame)
        for view in views:
            digest.update(view.data if view.ndim == 1 else view.tobytes())
        return bool(digest.intdigest() == checksum)

    def blot(self) -> None:
        """Overwrite all that may be written with noise."""
        noise = np.random.default_rng().integers(0, 256, BLOT, np.uint8)
        for plane in self._next:
            size = self._layout.planes[plane].token_bytes * (self.grant.tokens - self.grant.held)
            for view in self._views(Frame(plane, plane + 1, self.grant.held, self.grant.tokens, size)):
                if view.ndim > 1:
                    view[...] = np.resize(noise, view.shape)
                    continue
                for start in range(0, view.size, BLOT):
                    view[start : start + BLOT] = noise[: view.size - start]

    def landed(self, frame: Frame, views: Sequence[Bytes], checksum: int) -> None:
        """Count a frame whose bytes are in `views`. Raises WireError if the checksum does not fit."""
        self.count(frame, self.fits(frame, views, checksum))

    def count(self, frame: Frame, fits: bool) -> None:
        """As `landed`, by who took the checksum while the bytes came (see `digest`)."""
        if not fits:
            raise WireError(f"checksum of frame {self._frames} does not fit: bytes were damaged on the way")
        for plane in range(frame.plane_first, frame.plane_last):
            self._next[plane] = frame.last
        if frame.last == self.grant.tokens:
            self._missing -= frame.plane_last - frame.plane_first
        self._frames += 1
        self.landed_bytes += frame.size

    def _views(self, frame: Frame) -> Iterator[Bytes]:
        for index in range(frame.plane_first, frame.plane_last):
            plane = self._layout.planes[index]
            yield from plane_views(self._memory[self._offsets[index] :], plane, frame.first, frame.last)
