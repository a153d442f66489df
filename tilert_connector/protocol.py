"""Every message of the control plane, its limits, and the codec.

ZeroMQ DEALER (prefill node, one per lane) to ROUTER (decode node), one msgpack frame per message.
Invariant: nothing outside these types and limits is ever acted on; unknown fields are refused, so that
two builds that differ find out at the first message and not by a damaged slot.
"""

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from tilert_connector.chain import BLOCK
from tilert_connector.errors import MessageError
from tilert_connector.layout.fingerprint import Fingerprint

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Accepted",
    "Done",
    "Ended",
    "FromDecode",
    "FromPrefill",
    "Hello",
    "Offer",
    "Refused",
    "Welcome",
    "Withdraw",
    "decode_from_decode",
    "decode_from_prefill",
    "encode",
]

MAX_MESSAGE_BYTES: Final = 512 * 1024
"""The chain of a prompt of a million tokens fits (250 KiB)."""

HandoffId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Reason = Annotated[str, msgspec.Meta(max_length=2048)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=4096)]
Round = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Tokens = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**32)], ...], msgspec.Meta(max_length=BLOCK)]
Key = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Ranges = Annotated[tuple[tuple[Index, Index], ...], msgspec.Meta(min_length=1, max_length=4096)]
"""Half-open ranges of plane indices, ascending."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A control message; the tag is the class name."""


class Hello(_Message, frozen=True, kw_only=True):
    """First message of a lane: who sends, and what its attention state looks like."""

    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    fingerprint: Fingerprint


class Offer(_Message, frozen=True, kw_only=True):
    """Ask for a slot. `round` counts the attempts of one sender: a higher one starts over at token 0
    under a new generation (the request was preempted and its blocks are gone).

    chain: see `chain.Prefix`; empty if this state must not be shared. rest: the token ids behind its last block."""

    handoff: HandoffId
    rank: Rank
    round: Round
    tokens: Count
    planes: Ranges
    chain: Annotated[bytes, msgspec.Meta(max_length=1 << 18)] = b""
    rest: Tokens = ()
    ticket: Annotated[str, msgspec.Meta(max_length=8192)] | None = None


class Done(_Message, frozen=True, kw_only=True):
    """Every byte of this rank's planes from token `start` on was written and acknowledged under this generation."""

    handoff: HandoffId
    rank: Rank
    generation: Generation
    start: Index = 0


class Withdraw(_Message, frozen=True, kw_only=True):
    """The sender gives up; it writes nothing after this."""

    handoff: HandoffId
    rank: Rank
    reason: Reason


class Welcome(_Message, frozen=True, kw_only=True):
    """The decode node fits this prefill node. `data_port` belongs to the host of the control port."""

    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    transport: Annotated[str, msgspec.Meta(max_length=32)]
    data_port: Annotated[int, msgspec.Meta(ge=0, lt=65536)]
    capacity: Count


class Refused(_Message, frozen=True, kw_only=True):
    """A hello (`handoff` empty) or an offer is not accepted. Nothing may be written."""

    code: Literal["fingerprint", "hello", "limit", "busy", "ended", "conflict", "malformed", "ticket"]
    reason: Reason
    handoff: Annotated[str, msgspec.Meta(max_length=128)] = ""
    rank: Rank = 0
    round: Round = 0


class Accepted(_Message, frozen=True, kw_only=True):
    """Leave to write, valid for this handoff, rank, round and generation only. `key` opens the data plane.

    held: the decode node holds the state of that many leading tokens, whole blocks of equal
    digests; tail: and then of these token ids, as far as the prompt has them too."""

    handoff: HandoffId
    rank: Rank
    round: Round
    generation: Generation
    key: Key
    held: Index = 0
    tail: Tokens = ()


class Ended(_Message, frozen=True, kw_only=True):
    """The one end of a handoff, told to each of its senders."""

    handoff: HandoffId
    state: Literal["committed", "failed", "cancelled"]
    reason: Reason = ""


FromPrefill = Hello | Offer | Done | Withdraw
FromDecode = Welcome | Refused | Accepted | Ended

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_from_prefill: msgspec.msgpack.Decoder[FromPrefill] = msgspec.msgpack.Decoder(FromPrefill)
_from_decode: msgspec.msgpack.Decoder[FromDecode] = msgspec.msgpack.Decoder(FromDecode)


def encode(message: FromPrefill | FromDecode) -> bytes:
    """One msgpack frame. Raises MessageError over MAX_MESSAGE_BYTES."""
    data = _encoder.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        kind = type(message).__name__
        raise MessageError(f"{kind} has {len(data)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    return data


def decode_from_prefill(data: bytes) -> FromPrefill:
    """What a decode node may receive. Raises MessageError."""
    return _decode(_from_prefill, data)


def decode_from_decode(data: bytes) -> FromDecode:
    """What a prefill node may receive. Raises MessageError."""
    return _decode(_from_decode, data)


def _decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T:
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageError(f"message has {len(data)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"message refused: {error}") from error
