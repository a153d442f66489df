"""What `speedtier doctor` needs to know."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["DoctorConfig"]

Url = Annotated[str, Meta(pattern=r"^https?://[^/]")]


class DoctorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prefill server and one decode node, as the router has them."""

    prefill: Annotated[Url, Meta(description="Base URL of the vLLM server with the connector.")]
    decode: Annotated[Url, Meta(description="Base URL of the decode node.")]
    ctrl_host: Annotated[
        str, Meta(description="Host by which the prefill server reaches the decode node; empty: that of --decode.")
    ] = ""
    listen: Annotated[str, Meta(description="Address of this machine by which the prefill server can reach it.")] = (
        "127.0.0.1"
    )
    ticket_key_file: Annotated[str, Meta(description="The router's ticket keys, where the pair wants tickets.")] = ""
    curve_key_file: Annotated[
        str, Meta(description="A secret CURVE certificate whose public one the decode node lets in.")
    ] = ""
    curve_server: Annotated[str, Meta(description="The decode node's public CURVE certificate.")] = ""
    api_key: Annotated[str, Meta(description="vLLM's --api-key, where it has one.")] = ""
    mib: Annotated[int, Meta(ge=1, le=4096, description="Size of the test pattern in MiB, at most one slot.")] = 64
    timeout_s: Annotated[float, Meta(gt=0, le=600, description="Seconds that each check may take.")] = 15.0
    json: Annotated[bool, Meta(description="Print JSON in place of the table.")] = False
