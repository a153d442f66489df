"""NIXL as an engine: no progress thread, since one costs a core and delays the others on a small machine.

A write that NIXL calls done has arrived (it flushes the endpoint), so nothing needs patience. Which wires it uses is
UCX's choice: UCX_TLS and UCX_NET_DEVICES are the operator's.

Source: nixl/_api.py of NIXL 1.5.1.
"""

import contextlib
import os
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilert_connector.errors import WireError
from tilert_connector.transport.engine import EngineMissing, Span

__all__ = ["NixlEngine"]

MEMORY = "DRAM"


def _library() -> Any:
    try:
        from nixl import _api
    except Exception as error:  # its import loads UCX and may fail in ways of its own
        raise EngineMissing(
            f"transport: nixl cannot be used ({error}); without a GPU install it with "
            "pip install --no-deps nixl==1.5.1 nixl-cu12==1.5.1"
        ) from error
    return _api


class NixlEngine:
    """Raises EngineMissing."""

    patience_s = 0.0

    def __init__(self) -> None:
        library = _library()
        config = library.nixl_agent_config(enable_prog_thread=False)
        try:
            self._agent: Any = library.nixl_agent(f"speedtier-{os.getpid()}-{secrets.token_hex(6)}", config)
        except Exception as error:
            raise EngineMissing(f"transport: nixl does not start: {error}; look at UCX_TLS, UCX_NET_DEVICES") from error
        self._registered: dict[int, Any] = {}

    def register(self, address: int, size: int) -> None:
        try:
            self._registered[address] = self._agent.register_memory([(address, size, 0, "")], MEMORY)
        except Exception as error:
            raise WireError(f"nixl cannot register {size} bytes: {error!r}") from error

    def forget(self, address: int) -> None:
        registered = self._registered.pop(address, None)
        if registered is not None:
            with contextlib.suppress(Exception):
                self._agent.deregister_memory(registered)

    def name(self) -> bytes:
        return bytes(self._agent.get_agent_metadata())

    def meet(self, name: bytes) -> str:
        try:
            known = self._agent.add_remote_agent(name)
        except Exception as error:
            raise WireError(f"nixl cannot use the decode node's metadata: {error!r}") from error
        return known.decode() if isinstance(known, bytes) else str(known)

    def write(self, peer: str, spans: Sequence[Span]) -> "_NixlTransfer":
        here = np.zeros((len(spans), 3), np.uint64)
        there = np.zeros((len(spans), 3), np.uint64)
        here[:, 0], there[:, 0], here[:, 1] = zip(*spans, strict=True)
        there[:, 1] = here[:, 1]
        agent = self._agent
        try:
            ours, theirs = agent.get_xfer_descs(here, MEMORY), agent.get_xfer_descs(there, MEMORY)
            return _NixlTransfer(agent, agent.initialize_xfer("WRITE", ours, theirs, peer))
        except Exception as error:
            raise WireError(f"nixl cannot post a write: {error!r}") from error

    def poll(self) -> None:
        with contextlib.suppress(Exception):  # a peer that is gone is its own grant's matter
            self._agent.get_new_notifs()

    def close(self) -> None:
        for address in list(self._registered):
            self.forget(address)
        del self._agent


class _NixlTransfer:
    """Posts on construction."""

    def __init__(self, agent: Any, handle: Any) -> None:
        self._agent = agent
        self._handle = handle
        self._state = agent.transfer(handle)

    def done(self) -> bool:
        try:
            if self._state == "PROC":
                self._state = self._agent.check_xfer_state(self._handle)
            if self._state == "PROC":
                return False
            if self._state == "DONE":
                self._handle.release()
                return True
        except Exception as error:
            raise WireError(f"nixl lost a write: {error!r}") from error
        raise WireError(f"nixl ended a write as {self._state}")
