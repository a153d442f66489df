"""Who a request is for the servers behind the router: its id, and the key that they see.

Invariant (R7): every request has an id, the client's own or one that is made here; both legs and the reply carry it in
``x-request-id``. With ``api_keys`` the client's key stays here, in ``Authorization`` as in ``x-api-key``, and vLLM
servers get the key of ``upstream_key_file``, if there is one; without ``api_keys`` both headers go on unchanged.
"""

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from router.config import RouterConfig
from router.headers import ONWARD, cleared
from speedtier.errors import ConfigError

__all__ = ["identify", "name_reply", "upstream_key"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ID = "x-request-id"
KEYS = ("authorization", "x-api-key")
LONGEST = 256


def upstream_key(config: RouterConfig) -> str | None:
    """The key that vLLM servers want.

    Raises:
        ConfigError: the file cannot be read, or holds no key of one line.
    """
    file = config.upstream_key_file
    if not file:
        return None
    try:
        key = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"upstream_key_file = {file!r} cannot be read: {error}; name a file with the key") from error
    if not key or not key.isprintable() or not key.isascii():
        raise ConfigError(f"upstream_key_file = {file!r} holds no key; write the key alone into it, on one line")
    return key


def identify(config: RouterConfig) -> Middleware:
    """The middleware.

    Raises:
        ConfigError: see ``upstream_key``.
    """
    own, keyed = upstream_key(config), bool(config.api_keys)

    @web.middleware
    async def name(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = cleared(request.headers)
        if keyed:
            for each in KEYS:
                headers.popall(each, None)
            if own is not None:
                headers["Authorization"] = f"Bearer {own}"
        given = headers.get(ID, "")
        headers[ID] = given if 0 < len(given) <= LONGEST else uuid.uuid4().hex
        request[ONWARD] = headers
        return await handler(request)

    return name


async def name_reply(request: web.Request, reply: web.StreamResponse) -> None:
    """Tell the client the request's id, unless the server that replied did."""
    if (headers := request.get(ONWARD)) is not None:
        reply.headers.setdefault(ID, headers[ID])
