"""Signed leave for one handoff: the router signs it, both ends verify it.

Invariant: without a key of the file nobody can make a ticket that verifies, and a ticket that verifies names one
handoff to one decode node, so a client can neither open a slot nor point a prefill node anywhere.

On the wire: base64url(payload) "." base64url(HMAC-SHA256(key, CONTEXT + payload)); payload: `Ticket` as msgpack.
Several keys: the first one signs, all of them verify, so that keys are rotated by adding the new one as a second line
everywhere, then moving it first, then removing the old one.
"""

import base64
import binascii
import hmac
import time
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from speedtier.errors import ConfigError
from tilert_connector.errors import TicketError
from tilert_connector.secret import check_private

__all__ = ["SKEW_S", "Ticket", "check", "node_name", "read_keys", "sign"]

CONTEXT: Final = b"speedtier ticket\0"
"""Signed with the payload, so that a signature made with this key for anything else is no ticket."""
SKEW_S: Final = 30.0
"""Seconds by which the clocks of router and nodes may differ: a ticket is good for so much longer than it says."""
SHORTEST_KEY: Final = 32


class Ticket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leave to hand one request's state to one decode node.

    node: `node_name` of the decode node's control port as the claim gives it, which the prefill node compares, so that
    it also works where a decode node does not know by which address it is reached. instance: what the decode node
    calls itself in /capabilities, which it compares: new at each start, so that nothing is used again after a restart.
    tokens: most tokens of the prompt. expires: seconds since 1970.
    """

    node: Annotated[str, msgspec.Meta(max_length=300)]
    instance: Annotated[str, msgspec.Meta(max_length=64)]
    handoff: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    tokens: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    expires: Annotated[float, msgspec.Meta(ge=0, le=2**53)]


def node_name(host: str, port: int) -> str:
    """A decode node's name in tickets."""
    return f"{host}:{port}"


def read_keys(path: str) -> tuple[bytes, ...]:
    """The keys of a key file, one a line; empty lines and those that begin with # are none. No path: no keys.

    Raises ConfigError if it cannot be read, holds no key, or others than its owner and group may read it.
    """
    if not path:
        return ()
    try:
        text = check_private("ticket_key_file", path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"ticket_key_file: {path} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line.encode() for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"ticket_key_file: {path} holds no key; `speedtier keys` makes one")
    for number, key in enumerate(keys, 1):
        if len(key) < SHORTEST_KEY:
            raise ConfigError(
                f"ticket_key_file: {path}: key {number} has {len(key)} characters, at least {SHORTEST_KEY}"
            )
    return keys


def sign(keys: Sequence[bytes], ticket: Ticket) -> str:
    """The ticket as text, signed with the first key."""
    payload = msgspec.msgpack.encode(ticket)
    return f"{_text(payload)}.{_text(_mac(keys[0], payload))}"


def check(
    keys: Sequence[bytes],
    text: str | None,
    *,
    handoff: str,
    tokens: int,
    node: str | None = None,
    instance: str | None = None,
    now: float | None = None,
) -> Ticket:
    """The ticket, if it is good for this handoff of `tokens` tokens to this decode node.

    node, instance: compared where given. now: seconds since 1970. Raises TicketError that says what is wrong.
    """
    if not text:
        raise TicketError("ticket: there is none; the router needs the same ticket_key_file")
    ticket = _verified(keys, text)
    now = time.time() if now is None else now
    if ticket.handoff != handoff:
        raise TicketError(f"ticket: it is for handoff {ticket.handoff!r}, not {handoff!r}")
    if node is not None and ticket.node != node:
        raise TicketError(f"ticket: it is for decode node {ticket.node!r}, not {node!r}")
    if instance is not None and ticket.instance != instance:
        raise TicketError(f"ticket: it is for instance {ticket.instance!r} of a decode node, this is {instance!r}")
    if tokens > ticket.tokens:
        raise TicketError(f"ticket: it allows {ticket.tokens} tokens, the prompt has {tokens}")
    if now > ticket.expires + SKEW_S:
        raise TicketError(f"ticket: it expired {now - ticket.expires:.0f} s ago; compare the clocks of router and node")
    return ticket


def _verified(keys: Sequence[bytes], text: str) -> Ticket:
    payload_text, dot, mac_text = text.partition(".")
    if not dot:
        raise TicketError("ticket: it is not signed")
    try:
        payload, mac = _bytes(payload_text), _bytes(mac_text)
    except ValueError:
        raise TicketError("ticket: it is not base64url") from None
    # Each key is tried, whatever the others gave: the time tells nothing of which one fits.
    if not any([hmac.compare_digest(_mac(key, payload), mac) for key in keys]):
        raise TicketError("ticket: it is forged, or signed with a key that is not in ticket_key_file")
    try:
        return msgspec.msgpack.decode(payload, type=Ticket)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise TicketError(f"ticket: signed, but not by a router that we know: {error}") from error


def _mac(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, CONTEXT + payload, "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Raises ValueError unless `text` is exactly what `_text` gives, so that a ticket has one spelling."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(str(error)) from error
    if _text(data) != text:
        raise ValueError("another spelling of the same bytes")
    return data
