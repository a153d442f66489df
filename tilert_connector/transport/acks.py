"""What a sink has confirmed of one connection's frames.

Invariant: confirmations come in the order of the frames; one that does not is an error and counts nothing.
"""

from tilert_connector.errors import WireError
from tilert_connector.transport.frame import ACK

__all__ = ["Acks"]


class Acks:
    """`posted` is the caller's to count. completed: how many frames were confirmed."""

    def __init__(self) -> None:
        self.posted = 0
        self.completed = 0
        self._in = bytearray()

    def take(self, data: bytes | bytearray) -> int:
        """Bytes that came from the sink; how many frames they confirm. Raises WireError."""
        self._in += data
        before = self.completed
        while len(self._in) >= ACK.size:
            (index,) = ACK.unpack_from(self._in)
            del self._in[: ACK.size]
            if index != self.completed or index >= self.posted:
                raise WireError(f"acknowledged frame {index}, expected {self.completed}")
            self.completed += 1
        return self.completed - before
