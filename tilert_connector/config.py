"""What an operator may set in `kv_connector_extra_config` of the connector.

Invariant: an unknown key or a value out of range stops vLLM at start-up with its name in the message.
"""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from speedtier.errors import ConfigError

__all__ = ["ConnectorConfig", "read_config"]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]


class ConnectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a prefill node may send attention state, and how long each step may take."""

    networks: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Networks (CIDR) whose decode nodes may be written to."),
    ] = ("127.0.0.0/8", "::1/128")
    handoff_s: Annotated[Seconds, msgspec.Meta(description="Seconds from the first prefill chunk to the commit.")] = (
        300.0
    )
    hold_s: Annotated[
        Seconds, msgspec.Meta(description="Seconds that blocks may be held after the request finished.")
    ] = 60.0
    connect_s: Annotated[Seconds, msgspec.Meta(description="Seconds for a decode node to answer the hello.")] = 5.0
    offer_s: Annotated[Seconds, msgspec.Meta(description="Seconds for a decode node to accept or refuse an offer.")] = (
        40.0
    )
    idle_s: Annotated[Seconds, msgspec.Meta(description="Seconds without a handoff after which a lane is closed.")] = (
        60.0
    )
    frame_bytes: Annotated[
        int, msgspec.Meta(ge=4096, le=1 << 30, description="Largest frame on the data plane, in bytes.")
    ] = 2 << 20
    max_lanes: Annotated[int, msgspec.Meta(ge=1, description="Decode nodes that may be written to at a time.")] = 64
    ticket_key_file: Annotated[
        str, msgspec.Meta(description="File with the router's ticket keys; claims without its ticket are then refused.")
    ] = ""
    curve_key_file: Annotated[
        str, msgspec.Meta(description="This node's secret CURVE certificate; decode nodes must then speak CURVE.")
    ] = ""
    curve_server: Annotated[
        str,
        msgspec.Meta(description="Public CURVE certificate of all decode nodes, or a directory of HOST_PORT.key."),
    ] = ""
    weights: Annotated[
        str, msgspec.Meta(description="Name for the weights, instead of a digest of the checkpoint's files.")
    ] = ""


def read_config(extra: Mapping[str, Any]) -> ConnectorConfig:
    """The checked configuration. Raises ConfigError."""
    try:
        config = msgspec.convert(dict(extra), ConnectorConfig)
        for network in config.networks:
            ipaddress.ip_network(network)
    except (msgspec.ValidationError, ValueError) as error:
        known = ", ".join(ConnectorConfig.__struct_fields__)
        raise ConfigError(f"kv_connector_extra_config: {error} (known keys: {known})") from error
    return config
