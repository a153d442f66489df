"""Messages: what comes back is what was sent, and nothing else is taken."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tilert_connector.paged_model import fingerprint
from tilert_connector import protocol
from tilert_connector.errors import MessageError
from tilert_connector.protocol import Accepted, Done, Ended, Hello, Offer, Refused, Welcome, Withdraw

FROM_PREFILL = [
    Hello(instance="i", fingerprint=fingerprint()),
    Offer(handoff="h", rank=0, round=3, tokens=7, planes=((0, 2), (4, 5)), ticket="t"),
    Done(handoff="h", rank=1, generation=9),
    Withdraw(handoff="h", rank=0, reason="r"),
]
FROM_DECODE = [
    Welcome(instance="i", transport="tcp", data_port=1, capacity=8),
    Refused(code="busy", reason="r", handoff="h", rank=0, round=2),
    Accepted(handoff="h", rank=0, round=0, generation=1, key=b"k" * 16),
    Ended(handoff="h", state="failed", reason="r"),
]


@pytest.mark.parametrize("message", FROM_PREFILL, ids=lambda m: type(m).__name__)
def test_prefill_messages_come_back(message: protocol.FromPrefill) -> None:
    assert protocol.decode_from_prefill(protocol.encode(message)) == message
    with pytest.raises(MessageError):
        protocol.decode_from_decode(protocol.encode(message))


@pytest.mark.parametrize("message", FROM_DECODE, ids=lambda m: type(m).__name__)
def test_decode_messages_come_back(message: protocol.FromDecode) -> None:
    assert protocol.decode_from_decode(protocol.encode(message)) == message


@pytest.mark.contract("H7")
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"colour": 1}, "colour"),
        ({"handoff": ""}, "handoff"),
        ({"handoff": "h" * 129}, "handoff"),
        ({"rank": -1}, "rank"),
        ({"tokens": 0}, "tokens"),
        ({"tokens": 2**31}, "tokens"),
        ({"planes": []}, "planes"),
        ({"planes": [[0, -1]]}, "planes"),
        ({"planes": [[0, 1]] * 4097}, "planes"),
        ({"ticket": "t" * 8193}, "ticket"),
    ],
)
def test_out_of_limits_is_refused_by_name(change: dict[str, object], word: str) -> None:
    fields = {**msgspec.to_builtins(FROM_PREFILL[1], builtin_types=(bytes,)), **change}
    with pytest.raises(MessageError, match=word):
        protocol.decode_from_prefill(msgspec.msgpack.encode(fields))


def test_size_is_limited_both_ways() -> None:
    with pytest.raises(MessageError, match="limit"):
        protocol.decode_from_prefill(bytes(protocol.MAX_MESSAGE_BYTES + 1))
    with pytest.raises(MessageError, match="Offer has"):
        protocol.encode(msgspec.structs.replace(FROM_PREFILL[1], ticket="t" * protocol.MAX_MESSAGE_BYTES))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        message = protocol.decode_from_prefill(data)
    except MessageError:
        return
    assert protocol.decode_from_prefill(protocol.encode(message)) == message
