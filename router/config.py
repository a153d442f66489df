"""What an operator tells the router.

Invariant: a config that decodes is complete: every field has a default, and an empty list of servers makes
the requests that need it fail with 503 and the field's name, not the start.
"""

from typing import Annotated, Literal

import msgspec

__all__ = ["DecodeNodeConfig", "RouterConfig", "Timeouts", "TrafficClass"]

Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]", description="Base URL of a server.")]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
HandoffSeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]  # the longest that a decode node waits


class DecodeNodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode node: where the router calls it and where prefill servers reach it."""

    url: Url
    ctrl_host: Annotated[
        str | None, msgspec.Meta(description="Host that prefill servers connect to; default: the URL's host.")
    ] = None
    ctrl_port: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=65535)] | None,
        msgspec.Meta(description="Control port; default: what the node's /capabilities says."),
    ] = None


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that clients send, and the tier that serves it."""

    name: Annotated[str, msgspec.Meta(min_length=1, description="Value of the class header.")]
    pool: Annotated[Literal["speed", "native"], msgspec.Meta(description="Tier that serves the class.")]
    fallback: Annotated[
        Literal["native", "none"],
        msgspec.Meta(description="Where requests go that the speed tier cannot execute; none: they get 501."),
    ] = "native"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The longest each phase may take, in seconds."""

    receive: Annotated[Seconds, msgspec.Meta(description="Reading the client's request.")] = 60.0
    connect: Annotated[Seconds, msgspec.Meta(description="Connecting to a server, and asking what it can do.")] = 5.0
    render: Annotated[Seconds, msgspec.Meta(description="Rendering the prompt.")] = 30.0
    prefill: Annotated[Seconds, msgspec.Meta(description="From the prefill leg's start to its token.")] = 300.0
    handoff: Annotated[
        HandoffSeconds, msgspec.Meta(description="From the first token to the first one that the decode node adds.")
    ] = 60.0
    stall: Annotated[Seconds, msgspec.Meta(description="Between two tokens of the decode node.")] = 30.0
    cancel: Annotated[
        Seconds,
        msgspec.Meta(description="Letting the decode node end a request before its slot is given away."),
    ] = 1.0
    client: Annotated[Seconds, msgspec.Meta(description="A client that does not read its stream.")] = 60.0
    native: Annotated[Seconds, msgspec.Meta(description="Between two reads of a native server's reply.")] = 600.0
    shutdown: Annotated[Seconds, msgspec.Meta(description="Letting open requests finish at the end.")] = 10.0


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the router's settings."""

    host: Annotated[str, msgspec.Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535, description="Port to listen on; 0: a free one.")] = 8000
    prefill: Annotated[
        tuple[Url, ...],
        msgspec.Meta(description="vLLM servers with the connector, started with --enable-scale-out."),
    ] = ()
    decode: Annotated[tuple[DecodeNodeConfig, ...], msgspec.Meta(description="Decode nodes.")] = ()
    native: Annotated[tuple[Url, ...], msgspec.Meta(description="vLLM servers that prefill and decode.")] = ()
    ticket_key_file: Annotated[
        str,
        msgspec.Meta(description="File with the keys that prefill and decode nodes verify; its first signs handoffs."),
    ] = ""
    tokenizer: Annotated[
        str | None,
        msgspec.Meta(
            description="Model directory with tokenizer.json; default: the model root a prefill server names."
        ),
    ] = None
    classes: Annotated[tuple[TrafficClass, ...], msgspec.Meta(description="Traffic classes.")] = (
        TrafficClass(name="speed", pool="speed"),
        TrafficClass(name="native", pool="native"),
    )
    default_class: Annotated[str, msgspec.Meta(description="Class of a request that names none.")] = "native"
    class_header: Annotated[str, msgspec.Meta(description="Header that names the class.")] = "x-traffic-class"
    queue_limit: Annotated[int, msgspec.Meta(ge=0, description="Requests that may wait for a decode slot.")] = 64
    queue_wait_s: Annotated[float, msgspec.Meta(ge=0, description="The longest wait for a decode slot.")] = 30.0
    body_limit: Annotated[int, msgspec.Meta(ge=1024, description="Largest request body, in bytes.")] = 64 << 20
    response_role: Annotated[str, msgspec.Meta(description="vLLM's --response-role.")] = "assistant"
    timeouts: Annotated[Timeouts, msgspec.Meta(description="Timeouts per phase.")] = Timeouts()
