"""A control port of our own that a prefill server is pointed at, to hear what it says of itself.

Invariant: it grants nothing, so that the prefill server sends no byte.
"""

import asyncio

from tilert_connector.control import ControlSocket
from tilert_connector.layout import Fingerprint
from tilert_connector.protocol import FromPrefill, Hello, Refused

__all__ = ["Witness"]


class Witness:
    """`start` it, then `hello` waits for the first one."""

    def __init__(self, host: str) -> None:
        self._socket = ControlSocket(host, 0, self._on_message)
        self._heard: asyncio.Future[Fingerprint] = asyncio.get_running_loop().create_future()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._socket.port

    def start(self) -> None:
        """Bind. Raises ConfigError."""
        self._socket.start()

    async def hello(self, timeout_s: float) -> Fingerprint | None:
        """What the prefill server says it has, or None if it does not come."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._heard), timeout_s)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Give the port back."""
        await self._socket.close()

    def _on_message(self, peer: bytes, message: FromPrefill) -> None:
        if isinstance(message, Hello):
            self._socket.send(peer, Refused(code="fingerprint", reason="speedtier doctor takes no state"))
            if not self._heard.done():
                self._heard.set_result(message.fingerprint)
