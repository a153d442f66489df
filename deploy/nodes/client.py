"""Calls to the router's admin API.

Invariant: what the router refuses is told in its own words.
"""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from deploy.nodes.config import NodesConfig
from speedtier.errors import ConfigError, UpstreamError

__all__ = ["call"]

WITHIN_S = 30.0


def call(
    config: NodesConfig, method: str, path: str, body: dict[str, Any] | None = None, within_s: float = WITHIN_S
) -> dict[str, Any]:
    """The answer to a request.

    Raises:
        ConfigError: the key file cannot be read.
        UpstreamError: the router does not answer, or refuses.
    """
    try:
        key = Path(config.key_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"key_file = {config.key_file!r} cannot be read: {error}; name the file that the router has as "
            "admin_key_file, or make one with `speedtier keys --admin`"
        ) from error
    url = config.router.rstrip("/") + path
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=within_s) as reply:
            return msgspec.json.decode(reply.read(), type=dict[str, Any])
    except urllib.error.HTTPError as error:
        raise UpstreamError(f"router {config.router}: {_reason(error)}") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise UpstreamError(f"router {config.router} does not answer {path}: {error}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            answer = msgspec.json.decode(error.read())
            text = str(answer["error"]["message"])
        except (msgspec.MsgspecError, KeyError, TypeError, OSError):
            text = f"status {error.code}"
    hint = "; it needs admin_key_file to have /admin" if error.code == 404 and "endpoint" in text else ""
    return text + hint
