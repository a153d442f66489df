"""One request to one server of a pool.

Invariant: what a server answers, or that it does not, is told to its health and to no other's. Only a server that was
not reached counts as untouched: then the same request may go to another.
"""

from collections.abc import Mapping

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from router.config import Timeouts
from router.errors import PeerBroken, PeerTimeout, Unreached, UnreachedInTime
from router.health import Health

__all__ = ["Sent", "Upstream"]

GATEWAY = frozenset({502, 503, 504})
"""Statuses by which a server, or what stands before it, says that it cannot serve now."""


class Sent(aiohttp.BytesPayload):
    """A request body that knows whether any of it has been written."""

    begun = False

    async def write(self, writer: AbstractStreamWriter) -> None:
        self.begun = True
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.begun = True
        await super().write_with_length(writer, content_length)


class Upstream:
    """Asks servers.

    Args:
        session: one that leaves reply bodies compressed (``auto_decompress=False``).
    """

    def __init__(self, session: aiohttp.ClientSession, timeouts: Timeouts) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(sock_connect=timeouts.connect, sock_read=timeouts.native)

    async def ask(
        self, method: str, url: str, path: str, headers: Mapping[str, str], data: bytes | Sent | None, health: Health
    ) -> aiohttp.ClientResponse:
        """The server's reply, its body unread.

        Raises:
            Unreached: the server was not reached; nothing of the request has been sent.
            PeerBroken, PeerTimeout: it failed to answer.
        """
        try:
            reply = await self._session.request(
                method,
                url + path,
                headers=headers,
                data=data,
                allow_redirects=False,
                skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                timeout=self._timeout,
            )
        except aiohttp.ConnectionTimeoutError:
            health.failed("no connection in time")
            raise UnreachedInTime(f"native server {url} cannot be reached: no connection in time") from None
        except aiohttp.ClientConnectorError as error:
            health.failed(str(error))
            raise Unreached(f"native server {url} cannot be reached: {error}") from error
        except TimeoutError:
            raise PeerTimeout(f"native server {url} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            health.failed(str(error))
            raise PeerBroken(f"native server {url} cannot be reached: {error}") from error
        if reply.status in GATEWAY and "retry-after" not in reply.headers:
            health.failed(f"answered {path.partition('?')[0]} with {reply.status}")
        else:
            health.worked()
        return reply
