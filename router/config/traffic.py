"""Who is served how: traffic classes, the keys and the names that stand for them.

Invariant (R9): a class is asked for by API key, header, `service_tier`, model alias, in this order, else it is the
default.
"""

from typing import Annotated, Literal

import msgspec

__all__ = ["ApiKey", "ModelAlias", "TrafficClass"]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[\w.-]+$")]


class TrafficClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that clients send, the tier that serves it, and its queue."""

    name: Annotated[Name, msgspec.Meta(description="Value of the class header.")]
    pool: Annotated[Literal["speed", "native"], msgspec.Meta(description="Tier that serves the class.")]
    fallback: Annotated[
        Literal["native", "none"],
        msgspec.Meta(
            description="Where requests go that the speed tier cannot execute, that are too long for it, or that come "
            "while it is down; none: they get 501, 400, 502 or 503."
        ),
    ] = "native"
    fallback_wait_s: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="With a fallback: go there after so long in the queue; default: never, but 429."),
    ] = None
    service_tiers: Annotated[
        tuple[Name, ...],
        msgspec.Meta(description="Values of the body's service_tier that ask for it; the first is told in replies."),
    ] = ()
    queue_limit: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="Requests that may wait for a slot; default: queue_limit of the router."),
    ] = None
    queue_wait_s: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="The longest wait for a slot; default: queue_wait_s of the router."),
    ] = None
    weight: Annotated[
        float, msgspec.Meta(gt=0, le=1000, description="Its share of slots while several classes wait.")
    ] = 1.0


class ModelAlias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model name that clients may ask for, the model it is, and the class that it means."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256, description="What clients ask for.")]
    model: Annotated[str, msgspec.Meta(min_length=1, description="The model's name on the servers.")]
    traffic_class: Annotated[str, msgspec.Meta(min_length=1, description="Class of requests for it.")]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that clients send as `Authorization: Bearer`. The configuration holds its digest, never the key."""

    name: Annotated[Name, msgspec.Meta(description="What log lines call its owner.")]
    sha256: Annotated[
        str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of the key; `speedtier keys --api`.")
    ]
    traffic_class: Annotated[
        str | None, msgspec.Meta(description="Class of its requests; default: what they ask for.")
    ] = None
    may_choose: Annotated[
        bool, msgspec.Meta(description="Header, service_tier and model alias may name another class than the key's.")
    ] = False
    tenant: Annotated[
        Name | None,
        msgspec.Meta(description="Keys of one tenant share cached state, with nobody else; default: all share."),
    ] = None
