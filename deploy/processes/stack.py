"""A set of processes that live and die together.

Each part runs below a guard (guard.py) in a process group of its own, so that Ctrl-C reaches the launcher alone.
Not in a session of its own: Linux schedules sessions as groups (sched_autogroup), and on a busy machine one that
mostly sleeps, as a relay of tokens does, then waits for hundreds of milliseconds. However the launcher ends, by
return, exception, signal or SIGKILL, the guards end everything below them.

Invariant: after `close` nothing that was started is left, within each part's grace plus a few seconds.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import aiohttp
from rich.console import Console

from deploy.processes.part import Part, PartFailed
from deploy.processes.progress import Progress

__all__ = ["Stack"]

_GUARD = Path(__file__).with_name("guard.py")
_POLL_S = 0.2
_LAST_RESORT_S = 10.0


class _Running:
    def __init__(self, part: Part, process: asyncio.subprocess.Process, log: Path) -> None:
        self.part, self.process, self.log = part, process, log
        self.ended = asyncio.create_task(process.wait())

    def failure(self, what: str) -> PartFailed:
        return PartFailed(self.part, what, self.log)


class Stack:
    """Starts parts, watches them, ends them. An async context manager; logs go to `directory`."""

    def __init__(self, directory: Path, console: Console) -> None:
        self.directory = directory
        self._console = console
        self._running: list[_Running] = []

    async def __aenter__(self) -> "Stack":
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await asyncio.shield(self.close())

    async def start(self, parts: Sequence[Part]) -> None:
        """Start all `parts` at once and return when each one serves. Raises `PartFailed`."""
        fresh = [await self._launch(part) for part in parts]
        with Progress(self._console) as progress:
            waits = {asyncio.create_task(self._serving(one)): one for one in fresh}
            died = asyncio.create_task(self.died())
            try:
                while waits:
                    progress.waiting(one.part.name for one in waits.values())
                    done, _ = await asyncio.wait({*waits, died}, timeout=1.0, return_when="FIRST_COMPLETED")
                    for task in done:
                        task.result()
                        progress.done(waits.pop(task).part.name)
            finally:
                for task in (*waits, died):
                    task.cancel()
                await asyncio.gather(*waits, died, return_exceptions=True)

    async def died(self) -> None:
        """Wait until a part ends on its own, then raise `PartFailed`; never returns."""
        if not self._running:
            await asyncio.Event().wait()
        await asyncio.wait([one.ended for one in self._running], return_when="FIRST_COMPLETED")
        one = next(one for one in self._running if one.ended.done())
        raise one.failure(f"ended with status {one.ended.result()}")

    async def close(self) -> None:
        """End all parts, last started first asked, and wait for them."""
        running, self._running = self._running, []
        for one in reversed(running):
            assert one.process.stdin is not None
            one.process.stdin.close()
        for one in running:
            try:
                await asyncio.wait_for(asyncio.shield(one.ended), one.part.grace_s + _LAST_RESORT_S)
            except TimeoutError:
                one.process.kill()  # its child dies with it, by PR_SET_PDEATHSIG
                await one.ended

    async def _launch(self, part: Part) -> _Running:
        log = self.directory / f"{part.name}.log"
        with open(log, "ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(_GUARD), str(part.grace_s), *part.command),
                stdin=asyncio.subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                process_group=0,
                env=os.environ | part.environment,
            )
        one = _Running(part, process, log)
        self._running.append(one)
        return one

    async def _serving(self, one: _Running) -> None:
        deadline = asyncio.get_running_loop().time() + one.part.start_timeout_s
        timeout = aiohttp.ClientTimeout(total=2.0)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while asyncio.get_running_loop().time() < deadline:
                try:
                    async with session.get(one.part.health) as reply:
                        if reply.status == 200:
                            return
                except (aiohttp.ClientError, TimeoutError, OSError):
                    pass
                await asyncio.sleep(_POLL_S)
        raise one.failure(f"did not serve {one.part.health} within {one.part.start_timeout_s:.0f} s")
