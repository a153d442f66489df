"""A control port of our own that a prefill server is pointed at, to hear what it says of itself.

Invariant: it grants nothing, so that the prefill server sends no byte.
"""

import asyncio

from tilert_connector.control import ControlSocket
from tilert_connector.layout import Fingerprint
from tilert_connector.protocol import Ended, FromPrefill, Hello, Offer, Welcome

__all__ = ["Witness"]

LAST_WORDS_S = 0.1
"""The offer follows the hello at once."""


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
        """Give the port back, once what was offered has been answered."""
        await asyncio.sleep(LAST_WORDS_S)
        await self._socket.close()

    def _on_message(self, peer: bytes, message: FromPrefill) -> None:
        if isinstance(message, Hello):
            self._socket.send(peer, Welcome(instance="doctor", transport="none", data_port=0, capacity=1))
            if not self._heard.done():
                self._heard.set_result(message.fingerprint)
        elif isinstance(message, Offer):
            # Cancelled, not refused: on the prefill server this is no failure that anybody must look at.
            ended = Ended(handoff=message.handoff, state="cancelled", reason="speedtier doctor takes no state")
            self._socket.send(peer, ended)
