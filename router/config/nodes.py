"""The servers behind the router."""

from typing import Annotated

import msgspec

__all__ = ["DecodeNodeConfig", "NativePair", "Url"]

# No user or password: addresses are names in headers, metrics and logs.
Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[^/@?#]+(/|$)", description="Base URL of a server.")]
_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class DecodeNodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode node: where the router calls it and where prefill servers reach it."""

    url: Url
    ctrl_host: Annotated[
        str | None, msgspec.Meta(description="Host that prefill servers connect to; default: the URL's host.")
    ] = None
    ctrl_port: Annotated[
        _Port | None,
        msgspec.Meta(description="Control port; default: what the node's /capabilities says."),
    ] = None


class NativePair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A native prefill server and the native decode server that takes its state over `NixlConnector`."""

    prefill: Annotated[Url, msgspec.Meta(description="vLLM server that prefills (kv_producer).")]
    decode: Annotated[Url, msgspec.Meta(description="vLLM server that decodes (kv_consumer).")]
