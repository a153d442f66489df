"""Who may hand state over: the two places where tickets are checked.

Invariant: with keys set, a prefill node acts on no claim and a decode node on no offer whose ticket does not verify,
and one ticket opens one handoff once. Without keys everything is allowed: the network is then the only guard.
"""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilert_connector.claim import Claim
from tilert_connector.errors import TicketError
from tilert_connector.protocol import Offer
from tilert_connector.ticket import SKEW_S, check, node_name

__all__ = ["Authority", "check_claim"]


def check_claim(keys: Sequence[bytes], claim: Claim, tokens: int) -> None:
    """The prefill node's part, before a name is resolved or a byte is sent. tokens: of the prompt.

    Raises TicketError.
    """
    if keys:
        node = node_name(claim.host, claim.ctrl_port)
        check(keys, claim.ticket, handoff=claim.handoff, tokens=tokens, node=node)


class _Used(NamedTuple):
    text: str
    forget: float


class Authority:
    """The decode node's part. instance: of this decode node. keep_s: longest that a handoff may be open; a ticket is
    remembered until it has expired and that time is over. clock: seconds since 1970."""

    def __init__(
        self, keys: Sequence[bytes], instance: str, keep_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._instance = instance
        self._keep_s = keep_s
        self._clock = clock
        self._used: OrderedDict[str, _Used] = OrderedDict()

    def objection(self, offer: Offer, is_open: bool) -> str:
        """Why this offer may not be made; empty if it may, and its ticket counts as used from then on.

        is_open: the handoff is open and some rank has offered it; another rank, or another round of one, then shows
        the same ticket, which may have expired meanwhile.
        """
        if not self._keys:
            return ""
        used = self._used.get(offer.handoff)
        if used is not None:
            if not is_open:
                return "ticket: it was used before"
            same = hmac.compare_digest(used.text.encode(), (offer.ticket or "").encode())
            return "" if same else "ticket: another one opened this handoff"
        now = self._clock()
        try:
            ticket = check(
                self._keys,
                offer.ticket,
                handoff=offer.handoff,
                tokens=offer.tokens,
                instance=self._instance,
                now=now,
            )
        except TicketError as error:
            return str(error)
        while self._used and next(iter(self._used.values())).forget < now:
            self._used.popitem(last=False)
        self._used[offer.handoff] = _Used(offer.ticket or "", ticket.expires + SKEW_S + self._keep_s)
        return ""
