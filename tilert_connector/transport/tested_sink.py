"""A sink that proves itself before anyone may use it.

Invariant: when `start` has returned, a pattern went through this very sink and lay in the slot as it was written.
"""

from collections.abc import Callable

from speedtier.errors import ConfigError
from tilert_connector.errors import WireError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.views import Bytes
from tilert_connector.transport.base import Endpoint, Grant, Report, Sink
from tilert_connector.transport.choose import open_carriers
from tilert_connector.transport.self_test import Measured, Pattern, pattern_tokens, self_test

__all__ = ["TestedSink"]


class TestedSink:
    """slot: memory of the sink's slot 0, which has room for `capacity` tokens."""

    __test__ = False  # no test class

    def __init__(self, sink: Sink, layout: KvLayout, slot: Bytes, capacity: int) -> None:
        self._sink = sink
        self.late = sink.late
        self._layout = layout
        self._slot = slot
        self._capacity = capacity
        self.measured: Measured | None = None
        """What the test found; after `start`."""

    async def start(self) -> None:
        """Raises ConfigError, with the reason, if the transport does not carry the pattern."""
        await self._sink.start()
        try:
            pattern = Pattern(self._layout, pattern_tokens(self._layout, self._capacity))
            carrier = open_carriers(self._layout, [pattern.source])(self._sink.describe().transport)
            self.measured = await self_test(self._sink, carrier, self._slot, self._capacity, pattern)
        except WireError as error:
            await self._sink.close()
            raise ConfigError(str(error)) from error

    def describe(self) -> Endpoint:
        return self._sink.describe()

    def admit(self, grant: Grant, report: Callable[[Report], None]) -> None:
        self._sink.admit(grant, report)

    async def revoke(self, generation: int, timeout_s: float) -> bool:
        return await self._sink.revoke(generation, timeout_s)

    def content(self, slot: int) -> bytes:
        return self._sink.content(slot)

    async def close(self) -> None:
        await self._sink.close()
