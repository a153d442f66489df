"""Mooncake's TransferEngine over TCP.

What it does that one would not expect, and what follows here: a write is called complete when its bytes have left, so
the sink waits for them; -1 does not mean that nothing arrives later, so no failure is believed; asking twice about a
write that has ended crashes the process, so none is; the first write to a peer waits for that peer's answer. Its
listeners bind all interfaces whatever one sets: keep strangers away from its ports by the network.

Source: mooncake/engine.so of mooncake-transfer-engine-non-cuda 0.3.13.post1.
"""

from collections.abc import Sequence
from typing import Any

from tilert_connector.errors import WireError
from tilert_connector.transport.engine import EngineMissing, Span

__all__ = ["MooncakeEngine"]

MAX_SPANS = 512
"""Of one call; it takes about a thousand."""


def _library() -> Any:
    try:
        from tilert_connector.transport.mooncake_library import TransferEngine
    except Exception as error:  # a shared library that is missing is an ImportError, but not only
        raise EngineMissing(
            f"transport: mooncake cannot be used ({error}); install it with pip install "
            "mooncake-transfer-engine-non-cuda==0.3.13.post1, and libibverbs1, libnuma1 and libcurl4 of the system, "
            "or run make setup"
        ) from error
    return TransferEngine


class MooncakeEngine:
    """host: address under which peers reach this end. Raises EngineMissing."""

    patience_s = 10.0

    def __init__(self, host: str) -> None:
        self._engine: Any = _library()()
        if self._engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
            raise EngineMissing(f"transport: mooncake does not start on {host}; its messages are above")
        self._name = f"[{host}]:" if ":" in host else f"{host}:"
        self._registered: set[int] = set()

    def register(self, address: int, size: int) -> None:
        if self._engine.register_memory(address, size):
            raise WireError(f"mooncake cannot register {size} bytes; its messages are above")
        self._registered.add(address)

    def forget(self, address: int) -> None:
        if address in self._registered:
            self._registered.discard(address)
            self._engine.unregister_memory(address)

    def name(self) -> bytes:
        return f"{self._name}{self._engine.get_rpc_port()}".encode()

    def meet(self, name: bytes) -> str:
        return name.decode()

    def write(self, peer: str, spans: Sequence[Span]) -> "_MooncakeTransfer":
        handles: list[int] = []
        transfer = _MooncakeTransfer(self._engine, handles)
        for first in range(0, len(spans), MAX_SPANS):
            here, there, sizes = zip(*spans[first : first + MAX_SPANS], strict=True)
            handle = self._engine.batch_transfer_async_write(peer, list(here), list(there), list(sizes))
            if handle == 0:  # and it must never be asked about
                transfer.failed = f"mooncake cannot post a write to {peer}"
                break
            handles.append(handle)
        return transfer

    def poll(self) -> None:
        """It has threads of its own."""

    def close(self) -> None:
        for address in list(self._registered):
            self.forget(address)
        del self._engine


class _MooncakeTransfer:
    """Batches that were posted, and what is known of them."""

    def __init__(self, engine: Any, handles: list[int]) -> None:
        self._engine = engine
        self._handles = handles
        self.failed = ""

    def done(self) -> bool:
        while self._handles:
            state = self._engine.transfer_check_status(self._handles[-1])
            if state == 0:
                return False
            self._handles.pop()
            if state < 0:
                self.failed = self.failed or f"mooncake ended a write as {state}"
        if self.failed:
            raise WireError(self.failed)
        return True
