"""HTTP to one of the two servers, bounded in time."""

import asyncio
from typing import Any

import aiohttp
import msgspec

from deploy.doctor.errors import Unanswered

__all__ = ["Server"]


class Server:
    """headers: sent with every request."""

    def __init__(self, http: aiohttp.ClientSession, url: str, timeout_s: float, headers: dict[str, str]) -> None:
        self._http = http
        self._timeout_s = timeout_s
        self._headers = headers
        self.url = url.rstrip("/")

    async def get(self, path: str) -> Any:
        """JSON of a 200. Raises Unanswered."""
        return self._decoded(path, await self._call("GET", path, None))

    async def text(self, path: str) -> str:
        """Text of a 200. Raises Unanswered."""
        return (await self._call("GET", path, None)).decode(errors="replace")

    async def post(self, path: str, body: Any) -> Any:
        """JSON of a 200. Raises Unanswered."""
        return self._decoded(path, await self._call("POST", path, msgspec.json.encode(body)))

    async def _call(self, method: str, path: str, data: bytes | None) -> bytes:
        headers = {**self._headers, "content-type": "application/json"} if data is not None else self._headers
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.request(method, self.url + path, data=data, headers=headers) as reply,
            ):
                raw = await reply.read()
        except TimeoutError:
            raise Unanswered(f"{self.url} did not answer {path} within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unanswered(f"{self.url} cannot be reached: {error}") from error
        if reply.status != 200:
            said = raw[:500].decode(errors="replace")
            raise Unanswered(f"{self.url} answered {path} with {reply.status}: {said}", reply.status, raw)
        return raw

    def _decoded(self, path: str, raw: bytes) -> Any:
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            raise Unanswered(f"{self.url} answered {path} with something that is no JSON: {error}") from error
