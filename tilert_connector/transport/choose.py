"""Which transports there are, by name: one place for both ends.

Invariant: a transport whose library or machine support is missing is refused with the way to get it, and never
replaced by another in silence.
"""

from collections.abc import Callable

from tilert_connector.errors import WireError
from tilert_connector.transport.base import Carrier, Carriers
from tilert_connector.transport.tcp_writer import TcpCarrier

__all__ = ["make_carriers"]


def make_carriers(openers: dict[str, Callable[[], Carrier]] | None = None) -> Carriers:
    """How a lane gets a carrier of a named transport; `openers` in place of the real ones."""
    known = openers if openers is not None else {"tcp": TcpCarrier}

    def carrier(name: str) -> Carrier:
        if name not in known:
            raise WireError(f"transport: decode node has {name!r}, prefill node has {', '.join(known)}")
        return known[name]()

    return carrier
