"""What both ends say over the connection of a grant whose bytes travel another way.

writer: attach -> sink: place -> writer: for each frame whose bytes lie in the slot, its header and checksum ->
sink: ack, once it has read them there and the checksum fits. Before it leaves, a writer that has no write under way
says bye; from one that leaves without, the slot's pages are taken away.

Invariant: a frame is announced only after its bytes left the writer's hands, and confirmed only after the sink has
read the same bytes in the slot.
"""

import struct
from typing import Annotated, Final

import msgspec

from tilert_connector.errors import WireError
from tilert_connector.transport.frame import CHECKSUM, HEADER

__all__ = ["ANNOUNCEMENT", "BYE", "MAX_PLACE", "PLACE_SIZE", "Place", "decode_place", "encode_place"]

ANNOUNCEMENT: Final = HEADER.size + CHECKSUM.size
BYE: Final = b"bye!".ljust(ANNOUNCEMENT, b"\0")
PLACE_SIZE: Final = struct.Struct("<I")
MAX_PLACE: Final = 64 * 1024


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a slot is for its writer.

    epoch: names the slot's pages; what was learned of another epoch is void. slot: its number. size: bytes, starting
    at the first plane. capacity: tokens, from which the planes' offsets follow. address: where an engine writes to,
    in the decode node's memory (0: in a file that comes along). peer: what the engine needs to find the decode node.
    """

    epoch: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    slot: Annotated[int, msgspec.Meta(ge=0)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    capacity: Annotated[int, msgspec.Meta(ge=1)]
    address: Annotated[int, msgspec.Meta(ge=0)] = 0
    peer: bytes = b""


_decoder = msgspec.msgpack.Decoder(Place)


def encode_place(place: Place) -> bytes:
    """Its size, then msgpack."""
    data = msgspec.msgpack.encode(place)
    return PLACE_SIZE.pack(len(data)) + data


def decode_place(data: bytes | bytearray) -> tuple[Place, int] | None:
    """(place, bytes read), or None if more must come. Raises WireError."""
    if len(data) < PLACE_SIZE.size:
        return None
    (size,) = PLACE_SIZE.unpack_from(data)
    if size > MAX_PLACE:
        raise WireError(f"place of {size} bytes, the limit is {MAX_PLACE}")
    end = PLACE_SIZE.size + size
    if len(data) < end:
        return None
    try:
        return _decoder.decode(bytes(data[PLACE_SIZE.size : end])), end
    except msgspec.MsgspecError as error:
        raise WireError(f"place refused: {error}") from error
