"""Random faults against a prefill and a decode process, and what must hold after each of them.

Every fault comes from the seed. How long each process takes does not, so what a seed reproduces is the faults, their
targets and the moments after the start of a handoff at which they are let loose.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.tilert_connector.faults.child import Child, Gone
from tests.tilert_connector.faults.rogue import Rogue
from tests.tilert_connector.faults.terms import LIMIT_S

__all__ = ["FAULTS", "Schedule"]

GRACE_S = 6.0
"""Beyond the contract's own limits: for a machine that is busy with other things."""
WIRE = ("drop", "delay", "reorder", "corrupt", "truncate", "stall", "die")
FAULTS = (
    *(f"wire-{fault}" for fault in WIRE),
    *(f"{what}-{side}" for what in ("kill", "stop") for side in ("decode", "prefill")),
    *("restart-decode", "cancel", "abort", "preempt", "forged", "knock", "twins", "late"),
)


class Schedule:
    """Two processes, one at each end, that live as long as the faults let them."""

    def __init__(self, seed: int, transport: str = "tcp", slots: int = 2) -> None:
        self.seed, self.transport, self.slots = seed, transport, slots
        self.rng = random.Random(seed)
        self.ends: Counter[str] = Counter()
        self.done = 0
        self.rogue = Rogue(self.rng)
        self.decode: Child
        self.prefill: Child

    async def start(self) -> None:
        await self._start_decode(0, 0)
        await self._start_prefill()

    async def close(self) -> None:
        self.rogue.close()
        for child in (self.decode, self.prefill):
            child.go_on()
            await child.kill()

    async def fault(self, kind: str) -> None:
        """One fault among one to three handoffs; then everything must be as if it had not been."""
        self.done += 1
        handoffs = [
            self._handoff(kind if n == 0 else "", f"{self.seed}-{self.done}-{n}") for n in range(self.rng.randint(1, 3))
        ]
        acts: dict[str, Callable[[str], Awaitable[None]]] = {
            "kill-decode": self._kill_decode,
            "kill-prefill": self._kill_prefill,
            "stop-decode": lambda _: self._stop(self.decode),
            "stop-prefill": lambda _: self._stop(self.prefill),
            "restart-decode": self._restart_decode,
            "cancel": self._cancel,
            "forged": lambda handoff: self.rogue.speak(self.decode.first["ctrl_port"], handoff),
            "late": self._late,
            "knock": lambda _: self.rogue.knock(self.transport, self.decode.first["data_port"]),
        }
        moment, act = self.rng.choice((0.0, 0.002, 0.005, 0.01, 0.02, 0.05)), acts.get(kind)
        first = f"{self.seed}-{self.done}-0"

        async def let_loose() -> None:
            if act is not None:
                await asyncio.sleep(moment)
                await act(first)

        results = await asyncio.gather(let_loose(), *handoffs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise AssertionError(f"seed {self.seed}, fault {self.done} ({kind}): {result!r}") from result

    async def clean(self) -> None:
        """A handoff without a fault commits, and nothing is held afterwards."""
        self.done += 1
        await self.prefill.ask("calm", GRACE_S)
        await self._until_idle()
        if self.transport in ("nixl", "mooncake"):
            # An engine that was just started takes longer for its first write than these limits give it.
            await self._handoff("", f"{self.seed}-{self.done}-first")
            await self._until_idle()
        end = await self._handoff("", f"{self.seed}-{self.done}-clean")
        assert end == "committed", f"seed {self.seed}, fault {self.done}: a handoff without a fault {end}"
        await self._until_idle()

    async def statuses(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the decode node and of the prefill node."""
        return await self.decode.ask("status", GRACE_S), await self.prefill.ask("status", GRACE_S)

    async def _until_idle(self) -> None:
        async with asyncio.timeout(LIMIT_S + GRACE_S):
            while not await self._idle():
                await asyncio.sleep(0.05)

    async def _idle(self) -> bool:
        decode, prefill = await self.statuses()
        assert prefill["alive"], f"seed {self.seed}, fault {self.done}: engine loop: {prefill['failure']}"
        return (
            decode["slots_held"] == {}
            and decode["open"] == {}
            and prefill["held"] == []
            and prefill["free"] == self.prefill.first["blocks"]
        )

    async def _handoff(self, kind: str, handoff: str) -> str:
        """One handoff from its first chunk to its end on all sides; how it ended."""
        rng, tokens = self.rng, self.rng.choice((1, 2, 15, 16, 17, 40, 100, 161, 200))
        how = {"tokens": tokens, "seed": rng.randrange(6), "chunk": rng.choice((16, 17, 64, 200))}
        how["preempt"] = rng.randrange(tokens) if kind == "preempt" else -1
        how["abort"] = rng.randrange(tokens + 1) if kind == "abort" else -1
        faults = [[rng.randrange(12), kind.removeprefix("wire-")]] if kind.startswith("wire-") else []
        keep = rng.choice((0.0, 0.01, 0.05))
        prefill, decode = self.prefill, self.decode
        port = decode.first["ctrl_port"]
        most = LIMIT_S + 1.5 + GRACE_S
        sending = [prefill.ask("prefill", most, request=handoff, handoff=handoff, ctrl_port=port, faults=faults, **how)]
        seeds = [how["seed"]]
        if kind == "twins":  # two requests under one id: at most one of them is handed off
            seeds.append(9)
            twin = {**how, "seed": 9, "request": f"{handoff}-twin"}
            sending.append(prefill.ask("prefill", most, handoff=handoff, ctrl_port=port, faults=[], **twin))
        taking = decode.ask("take", most, handoff=handoff, seeds=seeds, tokens=tokens, wait=LIMIT_S, keep=keep)
        released, taken = await asyncio.gather(self._all(sending), _or_gone(taking))
        del released
        end = "gone" if taken is None else "committed" if "exact" in taken else "failed"
        if taken is not None and "exact" in taken:
            assert taken["exact"], f"{handoff}: wrong bytes after {kind or 'no fault'}"
        if taken is not None and "failed" in taken:
            assert taken["failed"], f"{handoff}: failed without a reason"
        self.ends[end] += 1
        return end

    async def _all(self, asked: list[Awaitable[Any]]) -> None:
        for one in asked:
            await _or_gone(one)

    async def _start_decode(self, ctrl_port: int, data_port: int) -> None:
        self.decode = await Child("decode_child", self.transport, self.slots, ctrl_port, data_port).start()

    async def _start_prefill(self) -> None:
        self.prefill = await Child("prefill_child").start()

    async def _kill_decode(self, _: str) -> None:
        ports = self.decode.first
        await self.decode.kill()
        await self._start_decode(ports["ctrl_port"], ports["data_port"])

    async def _restart_decode(self, _: str) -> None:
        ports, old = self.decode.first, self.decode
        await old.ask("close", GRACE_S)
        await old.kill()
        await self._start_decode(ports["ctrl_port"], ports["data_port"])

    async def _kill_prefill(self, _: str) -> None:
        await self.prefill.kill()
        await self._start_prefill()

    async def _stop(self, child: Child) -> None:
        child.stop()
        await asyncio.sleep(self.rng.choice((0.05, 0.3, LIMIT_S)))
        child.go_on()

    async def _cancel(self, handoff: str) -> None:
        with contextlib.suppress(Gone):
            await self.decode.ask("cancel", GRACE_S, handoff=handoff)

    async def _late(self, handoff: str) -> None:
        """Words about a handoff that has ended, or will have by then."""
        await asyncio.sleep(0.3)
        await self.rogue.speak(self.decode.first["ctrl_port"], handoff)


async def _or_gone(asked: Awaitable[Any]) -> Any:
    """None if the process was killed meanwhile."""
    try:
        return await asked
    except Gone:
        return None


@contextlib.asynccontextmanager
async def schedule(seed: int, transport: str = "tcp") -> AsyncIterator[Schedule]:
    """Both processes up; ended whatever happens."""
    made = Schedule(seed, transport)
    await made.start()
    try:
        yield made
    finally:
        await made.close()
