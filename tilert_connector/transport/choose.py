"""Which transports there are, by name: one place for both ends.

Invariant: a transport whose library or machine support is missing is refused with the way to get it, and never
replaced by another in silence.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

from speedtier.errors import ConfigError
from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.base import Carrier, Carriers, Sink
from tilert_connector.transport.pages import SlotPages
from tilert_connector.transport.shm_carrier import ShmCarrier
from tilert_connector.transport.shm_sink import ShmSink
from tilert_connector.transport.tcp_sink import TcpSink
from tilert_connector.transport.tcp_writer import TcpCarrier

__all__ = ["TRANSPORTS", "make_carriers", "open_carriers", "open_sink"]

TRANSPORTS = ("tcp", "shm", "nixl", "mooncake")


def make_carriers(openers: Mapping[str, Callable[[], Carrier]] | None = None) -> Carriers:
    """How a lane gets a carrier of a named transport; `openers` in place of the ones that need no engine."""
    known = openers if openers is not None else {"tcp": TcpCarrier}

    def carrier(name: str) -> Carrier:
        if name not in known:
            raise WireError(f"transport: decode node has {name!r}, prefill node has {', '.join(known)}")
        return known[name]()

    return carrier


def open_carriers(layout: KvLayout, sources: Sequence[Bytes]) -> Carriers:
    """Carriers of every transport, for state of this layout. sources: the memories, uint8[n], that frames are read
    from, which an engine must know before. A missing library shows when its transport is asked for."""
    return make_carriers({"tcp": TcpCarrier, "shm": functools.partial(ShmCarrier, layout)})


def open_sink(name: str, layout: KvLayout, slots: Sequence[SlotPages], capacity: int, host: str, port: int = 0) -> Sink:
    """A sink of a named transport, not started. Raises ConfigError."""
    if name == "tcp":
        return TcpSink(layout, [slot.array.data for slot in slots], capacity, host, port)
    if name == "shm":
        return ShmSink(layout, slots, capacity, host, port)
    raise ConfigError(f"transport: {name!r} is none of {', '.join(TRANSPORTS)}")
