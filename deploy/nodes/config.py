"""What the `speedtier nodes` commands are told."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["AddConfig", "NamedConfig", "NodesConfig", "RemoveConfig"]

Url = Annotated[str, Meta(pattern=r"^https?://[^/]")]
Port = Annotated[int, Meta(ge=1, le=65535)]
Kind = Literal["decode", "prefill", "native"]


class NodesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The router and its key."""

    router: Annotated[Url, Meta(description="Base URL of the router.")] = "http://127.0.0.1:8000"
    key_file: Annotated[str, Meta(description="File with the router's admin key (its admin_key_file).")] = (
        "keys/admin.key"
    )


class NamedConfig(NodesConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server of it."""

    name: Annotated[str, Meta(min_length=1, description="The server: host:port as `nodes list` shows it, or its URL.")]
    kind: Annotated[Kind | None, Meta(description="Needed where servers of two kinds share an address.")] = None


class RemoveConfig(NamedConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long its requests may take to end."""

    within_s: Annotated[float, Meta(ge=0, le=3600, description="Seconds to wait for its requests to end.")] = 300.0


class AddConfig(NodesConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server to take into service."""

    kind: Annotated[Kind, Meta(description="What it is to the router.")]
    url: Annotated[Url, Meta(description="Its base URL.")]
    prefill_url: Annotated[Url | None, Meta(description="Of a native pair: the server that prefills for it.")] = None
    ctrl_host: Annotated[str | None, Meta(description="Of a decode node: host that prefill servers connect to.")] = None
    ctrl_port: Annotated[Port | None, Meta(description="Of a decode node: its control port.")] = None
