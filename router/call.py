"""One client request on its way through the router.

Invariant: every reply to it says which class served it, on which node, and what made it fall back.
"""

import re
from dataclasses import dataclass

from aiohttp import web

from router.body import Body
from router.config import TrafficClass
from router.record import Record
from router.reply import Form, Reply

__all__ = ["Call", "Endpoint", "told"]

_UNFIT = re.compile(r"[^\w.-]", re.ASCII)


def told(record: Record) -> dict[str, str]:
    """The ``x-speedtier-*`` headers of a reply."""
    named = {
        "x-speedtier-class": record.served_by,
        "x-speedtier-node": record.node,
        "x-speedtier-fallback": _UNFIT.sub("?", record.fallback)[:64],
    }
    return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that both tiers serve. ``lengths``: fields in which a client asks for a reply length."""

    path: str
    reply: "type[Reply]"
    lengths: tuple[str, ...]

    @property
    def chat(self) -> bool:
        """Whether its replies are messages."""
        return self.path == "/v1/chat/completions"

    def shape(self, form: Form) -> Reply:
        """A reply of this endpoint."""
        return self.reply(form)  # type: ignore[call-arg]  # protocols do not fix constructors


@dataclass(slots=True)
class Call:
    """A request, what was read of it, and what is remembered of it."""

    request: web.Request
    endpoint: Endpoint
    body: Body
    traffic: TrafficClass
    record: Record

    @property
    def service_tier(self) -> str | None:
        """What the reply's ``service_tier`` says: the class's first; None, as vLLM's, where the class has none."""
        return next(iter(self.traffic.service_tiers), None)

    def headers(self) -> dict[str, str]:
        """The ``x-speedtier-*`` headers of the reply."""
        return told(self.record)
