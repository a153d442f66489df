"""API keys: who sends a request.

Invariant: a key is compared as a digest, in constant time and against every known one, and what is remembered of a
request is its owner's name, never the key.
"""

import hashlib
import hmac
from collections.abc import Mapping

from router.config import ApiKey, RouterConfig
from router.errors import Unauthorized
from speedtier.errors import ConfigError

__all__ = ["Keys", "bearer"]


def bearer(headers: Mapping[str, str]) -> bytes:
    """The key that a request carries, as bytes: ``Authorization: Bearer`` as OpenAI's clients send it, else
    ``x-api-key`` as Anthropic's do; empty where there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip().encode("utf-8", "surrogateescape")
    return headers.get("x-api-key", "").strip().encode("utf-8", "surrogateescape")


class Keys:
    """The configured keys; without any, everybody is let in.

    Raises:
        ConfigError: two keys share a name or a digest, or a key for the servers is set and none for clients.
    """

    def __init__(self, config: RouterConfig) -> None:
        self._known = [(bytes.fromhex(each.sha256), each) for each in config.api_keys]
        for field in ("name", "sha256"):
            values = [getattr(each, field) for each in config.api_keys]
            if twice := sorted({value for value in values if values.count(value) > 1}):
                raise ConfigError(f"api_keys: {field} {twice[0][:64]!r} is there twice; give each key its own")
        if config.upstream_key_file and not self._known:
            raise ConfigError(
                f"upstream_key_file = {config.upstream_key_file!r} needs api_keys: without them the router would lend "
                "the servers' key to everybody; make one with `speedtier keys --api NAME`"
            )

    @property
    def wanted(self) -> bool:
        """Whether clients need a key."""
        return bool(self._known)

    def owner(self, headers: Mapping[str, str]) -> ApiKey | None:
        """The key that a request carries; None where no keys are configured.

        Raises:
            Unauthorized: it carries none that is known.
        """
        if not self._known:
            return None
        digest = hashlib.sha256(bearer(headers)).digest()
        found: ApiKey | None = None
        for known, key in self._known:
            if hmac.compare_digest(known, digest):
                found = key
        if found is None:
            raise Unauthorized("This router wants an API key that it knows; send it as `Authorization: Bearer KEY`.")
        return found
