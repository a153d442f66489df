"""Sends preformatted chunks at a rate.

Invariant: what is late is made up for in one write, so the rate holds whatever the machine does.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

__all__ = ["Paced"]


class Paced:
    """One stream. `chunks` are sent round and round; `count` of them in all, `rate` a second, or as fast as the
    connection takes them when it is 0. `end` is called after the last."""

    def __init__(
        self,
        transport: asyncio.Transport,
        chunks: Sequence[bytes],
        count: int,
        rate: float,
        end: Callable[[], None],
    ) -> None:
        self._transport, self._chunks, self._count, self._rate, self._end = transport, chunks, count, rate, end
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        self._gate = asyncio.Event()
        self._gate.set()
        if rate:
            # Streams of one machine do not tick together.
            self._start = self._loop.time() + random.random() / rate
            self._loop.call_at(self._start, self._tick)
        else:
            self._task = self._loop.create_task(self._flood())

    def pause(self, paused: bool) -> None:
        """The connection takes no more, or does again."""
        if paused:
            self._gate.clear()
        else:
            self._gate.set()

    def _tick(self) -> None:
        if self._transport.is_closing():
            return
        due = min(int((self._loop.time() - self._start) * self._rate) + 1, self._count)
        if due > self._sent:
            if due == self._sent + 1:
                self._transport.write(self._chunks[self._sent % len(self._chunks)])
            else:
                late = range(self._sent, due)
                self._transport.write(b"".join(self._chunks[each % len(self._chunks)] for each in late))
            self._sent = due
        if self._sent < self._count:
            self._loop.call_at(self._start + self._sent / self._rate, self._tick)
        else:
            self._end()

    async def _flood(self) -> None:
        while self._sent < self._count and not self._transport.is_closing():
            self._transport.write(self._chunks[self._sent % len(self._chunks)])
            self._sent += 1
            if self._sent % 16 == 0:
                await asyncio.sleep(0)
            await self._gate.wait()
        self._end()
