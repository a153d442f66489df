"""Control frames as no prefill node would send them: fields at their limits and beyond, bytes that are no message.

Invariant: a seed gives the same frames on every machine.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tests.tilert_connector.paged_model import fingerprint
from tilert_connector.protocol import (
    MAX_MESSAGE_BYTES,
    Accepted,
    Done,
    Ended,
    FromDecode,
    FromPrefill,
    Hello,
    Offer,
    Refused,
    Welcome,
    Withdraw,
)

__all__ = ["Frames"]

Value = Callable[[random.Random], Any]
INTEGERS = (-(2**63), -1, 0, 1, 2, 3, 4095, 4096, 2**31 - 1, 2**31, 2**32, 2**62, 2**62 + 1, 2**63, 2**64 - 1)
ODD: tuple[Any, ...] = (
    None,
    True,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    "x",
    b"",
    b"\xff" * 16,
    [],
    {},
    [[]],
    {"a": 1},
)
TAGS = ("Hello", "Offer", "Done", "Withdraw", "Welcome", "Refused", "Accepted", "Ended", "hello", "", "_Message")


class Frames:
    """An endless supply. handoffs: how many ids are in use, few enough that frames meet each other's handoffs.
    from_decode: mostly what a decode node says, else mostly what a prefill node says."""

    def __init__(self, seed: int, planes: int, handoffs: int = 40, from_decode: bool = False) -> None:
        self._random = random.Random(seed)
        self._planes = planes
        self._handoffs = handoffs
        self._shares = (0.5, 0.5, 0.5, 0.5, 4, 2, 6, 2) if from_decode else (2, 6, 4, 2, 0.5, 0.5, 0.5, 0.5)
        self._sent: list[bytes] = []
        self._kinds: tuple[Callable[[], bytes], ...] = (
            self._good,
            self._good,
            self._replayed,
            self._field,
            self._field,
            self._fields_odd,
            self._tag,
            self._keys,
            self._flipped,
            self._cut,
            self._noise,
            self._nested,
            self._large,
        )
        weights = [6, 6, 4, 8, 8, 4, 3, 4, 6, 4, 4, 0.3, 0.02]
        self._weights = weights

    def next(self) -> bytes:
        """One frame."""
        (kind,) = self._random.choices(self._kinds, self._weights)
        frame = kind()
        if len(self._sent) < 500:
            self._sent.append(frame)
        else:
            self._sent[self._random.randrange(500)] = frame
        return frame

    def chance(self) -> float:
        """A number of [0, 1), of the same seed."""
        return self._random.random()

    def message(self) -> FromPrefill | FromDecode:
        """A message as its type allows it."""
        chance = self._random
        handoff = f"fuzz-{chance.randrange(self._handoffs)}"
        rank = chance.choice((0, 0, 0, 1, 4095))
        generation = chance.randint(1, 200)
        start = chance.randrange(self._planes)
        whole = ((0, self._planes),)
        made: tuple[FromPrefill | FromDecode, ...] = (
            Hello(instance="fuzz", fingerprint=fingerprint(weights=chance.choice("wwwx"))),
            Offer(
                handoff=handoff,
                rank=rank,
                round=chance.randrange(4),
                tokens=chance.choice((1, 8, 40, 200, 201, 2**31 - 1)),
                planes=chance.choice((whole, whole, ((start, start + 1),), ((0, 1), (1, 2)), ((2, 1),), ((0, 9999),))),
                chain=chance.choice((b"", b"", b"\0" * 16, b"\0" * 32, b"\1" * 15, bytes(32))),
                rest=chance.choice(((), (1, 2), tuple(range(8)), tuple(range(40)))),
                ticket=chance.choice((None, "x", "a.b", "é" * 8)),
            ),
            Done(handoff=handoff, rank=rank, generation=generation, start=chance.choice((0, 0, 8, 2**31 - 1))),
            Withdraw(handoff=handoff, rank=rank, reason=chance.choice(("", "r", "r" * 2048))),
            Welcome(instance="i", transport=chance.choice(("tcp", "tcp", "none")), data_port=1, capacity=1),
            Refused(code="busy", reason="r", handoff=chance.choice((handoff, handoff, handoff, ""))),
            Accepted(
                handoff=handoff,
                rank=rank,
                round=chance.randrange(2),
                generation=generation,
                key=b"k" * 16,
                held=chance.choice((0, 0, 0, 8, 64, 2**31 - 1)),
                tail=chance.choice(((), (1, 2), (2**32 - 1,) * 64)),
            ),
            Ended(handoff=handoff, state="committed" if chance.random() < 0.2 else "failed"),
        )
        (one,) = chance.choices(made, self._shares)
        return one

    def _good(self) -> bytes:
        return msgspec.msgpack.encode(self.message())

    def _replayed(self) -> bytes:
        return self._random.choice(self._sent) if self._sent else self._good()

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.msgpack.decode(self._good())
        return plain

    def _field(self) -> bytes:
        """One field, of the message or of the fingerprint in it, at or beyond its limits."""
        plain = self._plain()
        inner = plain.get("fingerprint")
        target = inner if isinstance(inner, dict) and self._random.random() < 0.7 else plain
        name = self._random.choice(list(target))
        target[name] = self._beyond(target[name])
        return msgspec.msgpack.encode(plain)

    def _beyond(self, value: Any) -> Any:
        chance = self._random
        if isinstance(value, int):
            return chance.choice(INTEGERS)
        if isinstance(value, str):
            size = chance.choice((0, 1, 64, 65, 127, 128, 129, 2048, 2049, 8192, 8193))
            return chance.choice("a\0é\U0001f600") * size
        if isinstance(value, bytes):
            return chance.randbytes(chance.choice((0, 1, 15, 16, 17, 32, 4096)))
        if isinstance(value, list):
            return value * chance.choice((0, 2, 1000)) + [chance.choice(ODD)] * chance.randrange(2)
        return chance.choice(ODD)

    def _fields_odd(self) -> bytes:
        plain = self._plain()
        for name in plain:
            if self._random.random() < 0.4:
                plain[name] = self._random.choice((*ODD, *INTEGERS))
        return msgspec.msgpack.encode(plain)

    def _tag(self) -> bytes:
        plain = self._plain()
        plain["type"] = self._random.choice((*TAGS, *ODD))
        return msgspec.msgpack.encode(plain)

    def _keys(self) -> bytes:
        """Fields left out, added, or there twice; the tag last."""
        plain = self._plain()
        pairs = list(plain.items())
        chance = self._random
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(pairs) + 1)
            match chance.randrange(4):
                case 0 if pairs:
                    del pairs[min(place, len(pairs) - 1)]
                case 1:
                    pairs.insert(place, chance.choice((("extra", 1), ("", None), ("type", "Done"), ("rank", 0))))
                case 2 if pairs:
                    pairs.insert(place, chance.choice(pairs))
                case _:
                    chance.shuffle(pairs)
        encode = msgspec.msgpack.encode
        return bytes([0x80 | min(15, len(pairs))]) + b"".join(encode(key) + encode(value) for key, value in pairs[:15])

    def _flipped(self) -> bytes:
        data = bytearray(self._good())
        for _ in range(self._random.randint(1, 4)):
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _cut(self) -> bytes:
        data = self._good()
        place = self._random.randrange(len(data) + 1)
        return data[:place] + self._random.choice((b"", self._random.randbytes(8), data))

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 2, 16, 200)))

    def _nested(self) -> bytes:
        """Containers in containers, as deep as a frame has room for, where a value is skipped or read."""
        depth = self._random.choice((10, 1000, 100_000))
        opener = self._random.choice((b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01"))
        core = opener * depth + b"\xc0"
        return self._random.choice((core, b"\x82\xa1x" + core + b"\xa4type\xa4Done"))

    def _large(self) -> bytes:
        size = self._random.choice((MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1))
        return self._random.choice((bytes(size), b"\xdb" + (size - 5).to_bytes(4, "big") + b"a" * (size - 5)))
