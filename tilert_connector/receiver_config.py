"""Where a decode node listens for handoffs, and how long each of their states may last."""

from typing import Annotated, Literal

import msgspec

__all__ = ["ReceiverConfig"]


class ReceiverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times in seconds; each bounds one state, so that no peer's silence keeps a slot."""

    host: Annotated[str, msgspec.Meta(description="Address to listen on for handoffs.")] = "127.0.0.1"
    ctrl_port: Annotated[int, msgspec.Meta(ge=0, lt=65536, description="Control port; 0 takes a free one.")] = 0
    data_port: Annotated[int, msgspec.Meta(ge=0, lt=65536, description="Data port; 0 takes a free one.")] = 0
    transport: Annotated[
        Literal["tcp", "shm", "nixl", "mooncake"],
        msgspec.Meta(description="How state travels; shm: from prefill nodes on this host alone."),
    ] = "tcp"
    handoff_s: Annotated[float, msgspec.Meta(gt=0, le=86400, description="Seconds from acceptance to commit.")] = 300.0
    slot_wait_s: Annotated[
        float, msgspec.Meta(gt=0, le=86400, description="Seconds that an offer may wait for a free slot.")
    ] = 30.0
    lease_s: Annotated[
        float,
        msgspec.Meta(gt=0, le=86400, description="Seconds that a slot is kept for a handoff that is not offered yet."),
    ] = 300.0
    expect_s: Annotated[
        float,
        msgspec.Meta(gt=0, le=86400, description="Seconds that a request for state waits for the state to be offered."),
    ] = 6.0
    claim_s: Annotated[
        float, msgspec.Meta(gt=0, le=86400, description="Seconds that committed state waits to be asked for.")
    ] = 60.0
    drain_s: Annotated[
        float, msgspec.Meta(gt=0, le=3600, description="Seconds that cancelling waits for a writer to stop.")
    ] = 2.0
    ticket_key_file: Annotated[
        str, msgspec.Meta(description="File with the router's ticket keys; offers without its ticket are then refused.")
    ] = ""
    curve_key_file: Annotated[
        str, msgspec.Meta(description="This node's secret CURVE certificate; the control port then speaks CURVE only.")
    ] = ""
    curve_clients: Annotated[
        str, msgspec.Meta(description="Directory with the public CURVE certificates of prefill nodes that are let in.")
    ] = ""
    max_handoffs: Annotated[
        int, msgspec.Meta(ge=1, description="Handoffs that may be open at a time; more are refused.")
    ] = 256
    resident: Annotated[
        bool, msgspec.Meta(description="Keep state after its request, so that the next prompt sends what is missing.")
    ] = True
    resident_generated: Annotated[
        bool,
        msgspec.Meta(description="Keep the state of generated tokens too, which this node computed itself."),
    ] = True
    remember: Annotated[
        int, msgspec.Meta(ge=1, description="Ended handoffs kept, so that what comes late is refused.")
    ] = 4096
