"""One plane: a stream of per-token attention state, and where each token's bytes lie in it.

A plane is what one layer keeps for one purpose (MLA: latent and rope values; GQA: the keys of one
head, the values of one head). Both ends of a handoff cut a token range into the same spans in the
same order, so a frame on the wire needs only (planes, first, last): no offset ever crosses it.
"""

from collections.abc import Iterator

import msgspec

__all__ = ["Plane", "Span"]

Span = tuple[int, int]
"""(offset in bytes from the start of the plane, length in bytes)."""


class Plane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of one plane in a slot.

    name: `layers.<i>.<kind>[.<head>]`, unique in a layout.
    width: values per token. item: bytes per value (float32 4, bfloat16 2).
    tile: tokens per tile. 1: rows, token-major `[token][width]`. T > 1: tiles of T tokens, each
      stored transposed, `[width][T]` (keys of vLLM's CPU_ATTN, vllm/v1/attention/backends/cpu_attn.py;
      T is the block size there).
    """

    name: str
    width: int
    item: int
    tile: int = 1

    @property
    def layer(self) -> int:
        """Index of the decoder layer whose state this is."""
        return int(self.name.split(".")[1])

    @property
    def token_bytes(self) -> int:
        """Bytes that one token adds."""
        return self.width * self.item

    def capacity_bytes(self, tokens: int) -> int:
        """Bytes of a plane with room for `tokens` tokens: whole tiles."""
        return -(-tokens // self.tile) * self.tile * self.token_bytes

    def spans(self, first: int, last: int) -> Iterator[Span]:
        """The bytes of tokens [first, last), in the order in which they travel.

        Neighbouring full tiles are one span; a partial tile is `width` spans.
        """
        if self.tile == 1:
            if last > first:
                yield first * self.token_bytes, (last - first) * self.token_bytes
            return
        tile_bytes = self.tile * self.token_bytes
        token = first
        while token < last:
            index, inside = divmod(token, self.tile)
            stop = min(last, (index + 1) * self.tile)
            if inside == 0 and stop - token == self.tile:
                full = (last - token) // self.tile
                yield index * tile_bytes, full * tile_bytes
                token += full * self.tile
                continue
            for value in range(self.width):
                start = index * tile_bytes + (value * self.tile + inside) * self.item
                yield start, (stop - token) * self.item
            token = stop
