"""Which keys `speedtier keys` makes."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["KeysConfig"]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
Label = Annotated[str, Meta(pattern=r"^[\w.-]{1,64}$")]


class KeysConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that are there already stay as they are; names add to them."""

    directory: Annotated[str, Meta(description="Where to put them; made if it is not there.")] = "keys"
    decode: Annotated[
        tuple[Name, ...],
        Meta(description="Decode nodes to make CURVE keys for: host as the router gives it out, or HOST_PORT."),
    ] = ()
    prefill: Annotated[tuple[Name, ...], Meta(description="Prefill servers to make CURVE keys for: any name.")] = ()
    api: Annotated[
        tuple[Label, ...],
        Meta(description="Names of clients to make an API key for: shown once, kept nowhere; no file is made then."),
    ] = ()
    admin: Annotated[bool, Meta(description="Make the key of the router's /admin, in the directory.")] = False
