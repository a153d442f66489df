"""Which requests are ours.

Invariant: a request without a `kv_transfer_params` dict with a non-empty `tilert_host` is never ours,
whatever else that dict holds: other connectors' keys pass untouched.
"""

from typing import Annotated

import msgspec

from tilert_connector.errors import ClaimError

__all__ = ["Claim", "read_claim"]


class Claim(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: f"tilert_{name}"):
    """Where the request's state is to go, and under which id."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    ctrl_port: Annotated[int, msgspec.Meta(ge=1, lt=65536)]
    handoff: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    ticket: Annotated[str, msgspec.Meta(max_length=8192)] | None = None


def read_claim(params: object) -> Claim | None:
    """The claim in `kv_transfer_params`, or None if the request is not ours.

    Raises ClaimError if it is ours and cannot be used.
    """
    if not isinstance(params, dict) or not params.get("tilert_host"):
        return None
    try:
        return msgspec.convert(params, Claim)
    except msgspec.ValidationError as error:
        raise ClaimError(f"kv_transfer_params: {error}") from error
