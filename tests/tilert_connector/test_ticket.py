"""Tickets: what verifies, and everything that does not."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedtier.errors import ConfigError
from tests.tilert_connector.paged_model import fingerprint
from tests.tilert_connector.test_receiver import ALL, Node, Peer, node
from tilert_connector.authority import Authority, check_claim
from tilert_connector.claim import Claim
from tilert_connector.errors import TicketError
from tilert_connector.protocol import Accepted, Ended, FromDecode, Hello, Offer, Refused, Welcome, Withdraw
from tilert_connector.ticket import SKEW_S, Ticket, check, node_name, read_keys, sign

pytestmark = pytest.mark.contract("H9")
KEYS = (b"k" * 32,)
NEW = (b"n" * 32,)
NOW = 1000.0


def ticket(**changes: object) -> Ticket:
    fields = {"node": "d:1", "instance": "i", "handoff": "h", "tokens": 8, "expires": NOW + 60}
    return Ticket(**{**fields, **changes})  # type: ignore[arg-type]


def checked(text: str | None, keys: tuple[bytes, ...] = KEYS, **changes: object) -> Ticket:
    asked = {"handoff": "h", "tokens": 8, "node": "d:1", "instance": "i", "now": NOW}
    return check(keys, text, **{**asked, **changes})  # type: ignore[arg-type]


def test_a_good_ticket_comes_back_as_it_was_signed() -> None:
    assert checked(sign(KEYS, ticket())) == ticket()
    assert checked(sign(KEYS, ticket(expires=NOW - SKEW_S)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is none"),
        ("", "there is none"),
        ("abc", "not signed"),
        ("!!!.???", "not base64url"),
        ("YQ==.YQ==", "not base64url"),
        ("YR.YQ", "not base64url"),
        (sign(NEW, ticket()), "forged"),
        (sign(KEYS, ticket(handoff="g")), "for handoff 'g'"),
        (sign(KEYS, ticket(node="e:1")), "for decode node 'e:1', not 'd:1'"),
        (sign(KEYS, ticket(instance="j")), "for instance 'j'"),
        (sign(KEYS, ticket(tokens=7)), "allows 7 tokens, the prompt has 8"),
        (sign(KEYS, ticket(expires=NOW - SKEW_S - 1)), "expired 31 s ago"),
        (sign(KEYS, msgspec.convert({"node": "d"}, dict)), "not by a router"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_said(text: str | None, message: str) -> None:
    with pytest.raises(TicketError, match=message):
        checked(text)


@given(st.data())
def test_no_changed_ticket_verifies(data: st.DataObject) -> None:
    text = sign(KEYS, ticket())
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda one: one != text[place]))
    with pytest.raises(TicketError):
        checked(text[:place] + letter + text[place + 1 :])


def test_keys_are_rotated_without_a_moment_in_which_nothing_verifies() -> None:
    old, both, swapped = KEYS, KEYS + NEW, NEW + KEYS
    assert checked(sign(old, ticket()), both) and checked(sign(both, ticket()), old)
    assert checked(sign(swapped, ticket()), both) and checked(sign(both, ticket()), swapped)
    assert checked(sign(swapped, ticket()), NEW)


def test_a_key_file_is_read_and_its_faults_are_named(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# new\n{'n' * 32}\n\n{'k' * 32}\n")
    file.chmod(0o600)
    assert read_keys(str(file)) == NEW + KEYS and read_keys("") == ()
    file.chmod(0o604)
    with pytest.raises(ConfigError, match=r"mode 0604.*chmod 600"):
        read_keys(str(file))
    file.chmod(0o600)
    for text, message in [("short", "key 1 has 5 characters"), ("# none\n", "holds no key"), ("ü" * 40, "read")]:
        file.write_text(text)
        with pytest.raises(ConfigError, match=f"ticket_key_file: .*{message}"):
            read_keys(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(str(tmp_path / "absent"))


def test_a_prefill_node_goes_only_where_the_router_sent_it() -> None:
    text = sign(KEYS, ticket(node=node_name("d", 1), expires=2**40))
    check_claim(KEYS, Claim(host="d", ctrl_port=1, handoff="h", ticket=text), 8)
    check_claim((), Claim(host="anywhere", ctrl_port=1, handoff="h"), 8)
    for claim in (
        Claim(host="evil", ctrl_port=1, handoff="h", ticket=text),
        Claim(host="d", ctrl_port=2, handoff="h", ticket=text),
        Claim(host="d", ctrl_port=1, handoff="g", ticket=text),
        Claim(host="d", ctrl_port=1, handoff="h"),
    ):
        with pytest.raises(TicketError):
            check_claim(KEYS, claim, 8)


def offer(text: str | None, handoff: str = "h", rank: int = 0, round_: int = 0) -> Offer:
    return Offer(handoff=handoff, rank=rank, round=round_, tokens=8, planes=((0, 1),), ticket=text)


def test_one_ticket_opens_one_handoff_once_for_all_its_ranks_and_rounds() -> None:
    now = NOW
    authority = Authority(KEYS, "i", keep_s=100, clock=lambda: now)
    text = sign(KEYS, ticket())
    assert not authority.objection(offer(text), is_open=False)
    now = NOW + 120  # expired: what is open goes on
    assert not authority.objection(offer(text, rank=1), is_open=True)
    assert not authority.objection(offer(text, round_=1), is_open=True)
    assert "another one" in authority.objection(offer(sign(KEYS, ticket(tokens=9)), rank=1), is_open=True)
    assert "another one" in authority.objection(offer(None, rank=1), is_open=True)
    assert "used before" in authority.objection(offer(text), is_open=False)
    now = NOW + 60 + SKEW_S + 101  # forgotten: it has expired
    assert not authority.objection(offer(sign(KEYS, ticket(handoff="g", expires=now)), "g"), is_open=False)
    assert "expired" in authority.objection(offer(text), is_open=False)


class Signed:
    """A node with a key, and a peer that has greeted it."""

    def __init__(self, one: Node, peer: Peer) -> None:
        self.one, self.peer = one, peer

    def text(self, handoff: str, **changes: object) -> str:
        fields = {"instance": self.one.receiver.instance, "handoff": handoff, "expires": 2**40}
        return sign(KEYS, ticket(**{**fields, **changes}))

    async def offer(self, text: str | None, handoff: str, peer: Peer | None = None, round_: int = 0) -> FromDecode:
        peer = peer or self.peer
        await peer.say(Offer(handoff=handoff, rank=0, round=round_, tokens=8, planes=ALL, ticket=text))
        return await peer.hear()


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text(KEYS[0].decode())
    file.chmod(0o600)
    return str(file)


async def test_a_decode_node_with_a_key_takes_signed_offers_alone(key_file: str) -> None:
    async with node(slots=2, ticket_key_file=key_file) as one:  # type: ignore[arg-type]
        peer, other = one.peer(), one.peer()
        for each in (peer, other):
            await each.say(Hello(instance="p", fingerprint=fingerprint()))
            assert isinstance(await each.hear(), Welcome)
        signed = Signed(one, peer)
        wrong = [None, "x", signed.text("other"), signed.text("h", instance="old"), signed.text("h", tokens=7)]
        for text in [*wrong, signed.text("h", expires=1)]:
            refused = await signed.offer(text, "h")
            assert isinstance(refused, Refused) and refused.code == "ticket" and "ticket: " in refused.reason
        assert one.receiver.status()["slots_held"] == {}
        good = signed.text("h")
        assert isinstance(await signed.offer(good, "h"), Accepted)
        stolen = await signed.offer(good, "h", other)
        assert isinstance(stolen, Refused) and stolen.code == "conflict"
        assert isinstance(await signed.offer(good, "h", round_=1), Accepted), "a round is no reuse"
        await peer.say(Withdraw(handoff="h", rank=0, reason="r"))
        assert isinstance(await peer.hear(), Ended)
        again = await signed.offer(good, "h", round_=2)
        assert isinstance(again, Refused) and again.code == "ended"


async def test_a_ticket_whose_handoff_was_forgotten_is_still_used(key_file: str) -> None:
    async with node(ticket_key_file=key_file, remember=2) as one:  # type: ignore[arg-type]
        peer = one.peer()
        await peer.greet()
        signed = Signed(one, peer)
        good = signed.text("h")
        assert isinstance(await signed.offer(good, "h"), Accepted)
        for handoff in ("h", "a", "b", "c"):
            await peer.say(Withdraw(handoff=handoff, rank=0, reason="r"))
        assert isinstance(await peer.hear(), Ended)
        again = await signed.offer(good, "h")
        assert isinstance(again, Refused) and again.code == "ticket" and "used before" in again.reason
