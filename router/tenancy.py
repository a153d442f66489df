"""Keeps the cached state of tenants apart (H12), on both tiers.

Invariant: with API keys, no ``cache_salt`` reaches a server as a client wrote it: it is a digest of the tenant and of
what the client wrote, so no client can name the state of another tenant.
"""

import hashlib

from router.body import Body
from router.config import ApiKey
from router.errors import BadRequest

__all__ = ["salt", "salted"]

_FIELD = "cache_salt"
# What vLLM takes (vllm/entrypoints/generate/base/protocol.py, validate_cache_salt), in its words.
_LONGEST = 128
_UNFIT = frozenset("@/\\\0")


def salt(tenant: str | None, own: str | None) -> str | None:
    """The ``cache_salt`` for the servers; None where tenants share, and the client asks for nothing else."""
    if tenant is None and own is None:
        return None
    digest = hashlib.sha256(b"speedtier cache_salt")
    for part in (tenant, own):
        told = b"-" if part is None else b"+" + part.encode("utf-8", "surrogatepass")
        digest.update(len(told).to_bytes(8) + told)
    return digest.hexdigest()


def salted(body: Body, key: ApiKey | None) -> Body:
    """The body with the salt of its key's tenant.

    Raises:
        BadRequest: vLLM would refuse the client's own salt, or the body cannot be looked into.
    """
    if key is None:
        return body
    if body.fields is None:
        raise BadRequest("The request body is not a JSON object in UTF-8; send one.")
    own = body.get(_FIELD)
    if own is not None and (not isinstance(own, str) or not own):
        raise BadRequest("Parameter 'cache_salt' must be a non-empty string if provided.", param=_FIELD)
    if own is not None and (len(own) > _LONGEST or _UNFIT & set(own)):
        raise BadRequest(
            f"Parameter 'cache_salt' must be at most {_LONGEST} characters and must not contain '@', '/', '\\\\', or "
            "NUL.",
            param=_FIELD,
        )
    made = salt(key.tenant, own)
    return body if made is None else body.changed({_FIELD: made})
