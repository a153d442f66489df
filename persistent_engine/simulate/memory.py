"""One device's memory, shared by the jobs that draw on it: each gets an equal part, up to the most that it can take.

Invariant: at any time the rates add up to no more than the memory gives (max-min fair shares; processor sharing with
caps), and what one does not take the others may.
"""

__all__ = ["Memory"]


class Memory:
    """Draws of one device, by worker. Times in seconds, sizes in bytes."""

    __slots__ = ("_bytes_per_s", "_caps", "_left", "_now", "_rates", "version")

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._left: dict[int, float] = {}
        self._caps: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._now = 0.0
        self.version = 0

    def start(self, now: float, worker: int, size: float, most: float) -> None:
        """`worker` begins to draw `size` bytes, at most `most` bytes a second."""
        self._advance(now)
        self._left[worker], self._caps[worker] = size, most
        self._share()

    def next(self) -> tuple[float, int] | None:
        """When the next draw ends and whose it is, as things stand."""
        if not self._left:
            return None
        rates = self._rates
        return min((self._now + left / rates[worker], worker) for worker, left in self._left.items())

    def end(self, now: float, worker: int) -> None:
        """`worker` has drawn all it wanted."""
        self._advance(now)
        del self._left[worker], self._caps[worker]
        self._share()

    def _advance(self, now: float) -> None:
        passed = now - self._now
        if passed > 0:
            rates = self._rates
            for worker, left in self._left.items():
                self._left[worker] = max(0.0, left - passed * rates[worker])
        self._now = now

    def _share(self) -> None:
        self.version += 1
        room, waiting = self._bytes_per_s, len(self._caps)
        self._rates = {}
        for most, worker in sorted((most, worker) for worker, most in self._caps.items()):
            self._rates[worker] = rate = min(most, room / waiting)
            room -= rate
            waiting -= 1
