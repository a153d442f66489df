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
from tilert_connector.transport.engine import Engine, EngineMissing
from tilert_connector.transport.engine_carrier import EngineCarrier
from tilert_connector.transport.engine_sink import EngineSink
from tilert_connector.transport.mooncake_engine import MooncakeEngine
from tilert_connector.transport.nixl_engine import NixlEngine
from tilert_connector.transport.pages import HeapSlot, Slot, SlotPages
from tilert_connector.transport.shm_carrier import ShmCarrier
from tilert_connector.transport.shm_sink import ShmSink
from tilert_connector.transport.tcp_sink import TcpSink
from tilert_connector.transport.tcp_writer import TcpCarrier

__all__ = ["TRANSPORTS", "allocate_slots", "make_carriers", "open_carriers", "open_sink"]

TRANSPORTS = ("tcp", "shm", "nixl", "mooncake")


def make_carriers(known: Mapping[str, Callable[[], Carrier]]) -> Carriers:
    """How a lane gets a carrier of a named transport, from those that are known."""

    def carrier(name: str) -> Carrier:
        if name not in known:
            raise WireError(f"transport: decode node has {name!r}, prefill node has {', '.join(known)}")
        return known[name]()

    return carrier


def open_carriers(layout: KvLayout, sources: Sequence[Bytes]) -> Carriers:
    """Carriers of every transport, for state of this layout. sources: the memories, uint8[n], that frames are read
    from, which an engine must know before. A missing library shows when its transport is asked for."""
    return make_carriers(
        {
            "tcp": TcpCarrier,
            "shm": functools.partial(ShmCarrier, layout),
            "nixl": functools.partial(_engine_carrier, NixlEngine, layout, sources),
            "mooncake": functools.partial(_engine_carrier, _mooncake_client, layout, sources),
        }
    )


def allocate_slots(name: str, count: int, size: int) -> list[Slot]:
    """`count` zeroed slots of `size` bytes, of the kind that a named transport needs. Raises ConfigError."""
    return [HeapSlot(size) if name == "tcp" else SlotPages(size) for _ in range(count)]


def open_sink(name: str, layout: KvLayout, slots: Sequence[Slot], capacity: int, host: str, port: int = 0) -> Sink:
    """A sink of a named transport, not started. slots: of `allocate_slots`. Raises ConfigError."""
    if name == "tcp":
        return TcpSink(layout, [slot.array.data for slot in slots], capacity, host, port)
    pages = [slot for slot in slots if isinstance(slot, SlotPages)]
    if len(pages) < len(slots):
        raise ConfigError(f"slots: transport {name} needs those that allocate_slots({name!r}, ...) makes")
    if name == "shm":
        return ShmSink(layout, pages, capacity, host, port)
    makers: dict[str, Callable[[], Engine]] = {"nixl": NixlEngine, "mooncake": lambda: MooncakeEngine(host)}
    if name in makers:
        return EngineSink(name, makers[name], layout, pages, capacity, host, port)
    raise ConfigError(f"transport: {name!r} is none of {', '.join(TRANSPORTS)}")


def _mooncake_client() -> Engine:
    return MooncakeEngine("127.0.0.1")  # nobody connects to this end


def _engine_carrier(make: Callable[[], Engine], layout: KvLayout, sources: Sequence[Bytes]) -> Carrier:
    """A handoff whose engine is missing here fails with the way out; the lane and its process go on."""
    try:
        return EngineCarrier(make, layout, sources)
    except EngineMissing as error:
        raise WireError(f"prefill node: {error}") from error
