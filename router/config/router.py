"""All of the router's settings, composed.

Invariant: unknown keys are refused, and every field has a default.
"""

from typing import Annotated

import msgspec

from router.config.nodes import DecodeNodeConfig, NativePair, Url
from router.config.timeouts import Timeouts
from router.config.traffic import ApiKey, ModelAlias, TrafficClass

__all__ = ["RouterConfig"]


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the router's settings."""

    host: Annotated[str, msgspec.Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535, description="Port to listen on; 0: a free one.")] = 8000
    prefill: Annotated[
        tuple[Url, ...],
        msgspec.Meta(description="vLLM servers with the connector, best with --enable-scale-out."),
    ] = ()
    decode: Annotated[tuple[DecodeNodeConfig, ...], msgspec.Meta(description="Decode nodes.")] = ()
    native: Annotated[tuple[Url, ...], msgspec.Meta(description="vLLM servers that prefill and decode.")] = ()
    native_pairs: Annotated[
        tuple[NativePair, ...],
        msgspec.Meta(description="Native prefill and decode servers that exchange state over NixlConnector."),
    ] = ()
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
    class_header: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,64}$", description="Header that names the class.")
    ] = "x-traffic-class"
    client_choice: Annotated[
        bool, msgspec.Meta(description="Clients may name a class; false: only their API key and the default count.")
    ] = True
    aliases: Annotated[tuple[ModelAlias, ...], msgspec.Meta(description="Model names that mean a class.")] = ()
    api_keys: Annotated[
        tuple[ApiKey, ...], msgspec.Meta(description="Keys that are let in; empty: everybody, and vLLM may ask.")
    ] = ()
    upstream_key_file: Annotated[
        str, msgspec.Meta(description="File with the key that vLLM servers want (--api-key); needs api_keys.")
    ] = ""
    admin_key_file: Annotated[
        str, msgspec.Meta(description="File with the key of /admin; empty: there is no /admin.")
    ] = ""
    session_headers: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Headers that name a conversation; the first that a request has counts."),
    ] = ("x-session-id", "session_id", "x-session-affinity", "x-claude-code-session-id", "x-conversation-id")
    queue_limit: Annotated[int, msgspec.Meta(ge=0, description="Requests that may wait for a decode slot.")] = 64
    queue_wait_s: Annotated[float, msgspec.Meta(ge=0, description="The longest wait for a decode slot.")] = 30.0
    body_limit: Annotated[int, msgspec.Meta(ge=1024, description="Largest request body, in bytes.")] = 64 << 20
    reasoning_parser: Annotated[
        str, msgspec.Meta(description="vLLM's --reasoning-parser of the prefill servers; needs the extra vllm.")
    ] = ""
    tool_parser: Annotated[
        str, msgspec.Meta(description="vLLM's --tool-call-parser of the prefill servers; needs the extra vllm.")
    ] = ""
    enable_auto_tool_choice: Annotated[
        bool, msgspec.Meta(description="vLLM's --enable-auto-tool-choice of the prefill servers.")
    ] = False
    response_role: Annotated[str, msgspec.Meta(description="vLLM's --response-role.")] = "assistant"
    timeouts: Annotated[Timeouts, msgspec.Meta(description="Timeouts per phase.")] = Timeouts()
