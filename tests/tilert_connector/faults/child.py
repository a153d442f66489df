"""A process that does what it is asked, one JSON line each way: so that it can be stopped and killed like a machine."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TextIO

__all__ = ["Child", "Gone", "descriptors", "serve", "take_stdout"]

Handlers = dict[str, Callable[..., Awaitable[Any]]]


class Gone(Exception):
    """The process ended before it answered."""


class Child:
    """The parent's end. `ask` may be called by many tasks at once."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._command = (sys.executable, "-m", f"tests.tilert_connector.faults.{module}", *map(str, arguments))
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.process: asyncio.subprocess.Process
        self.first: dict[str, Any] = {}

    async def start(self) -> "Child":
        """Run it and wait for its first line."""
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        self.first = json.loads(line)
        self._reading = asyncio.create_task(self._read(self.process.stdout))
        return self

    async def ask(self, what: str, within: float, **arguments: Any) -> Any:
        """The answer. Raises Gone, TimeoutError."""
        self._number += 1
        number = self._number
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(json.dumps([number, what, arguments]).encode() + b"\n")
        if self._reading.done():
            raise Gone
        try:
            return await asyncio.wait_for(future, within)
        finally:
            self._waiting.pop(number, None)

    def stop(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._signal(signal.SIGKILL)
        await self.process.wait()
        await self._reading

    def _signal(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    async def _read(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            number, answer = json.loads(line)
            future = self._waiting.get(number)
            if future is not None and not future.done():
                defect = answer.get("defect") if isinstance(answer, dict) else None
                future.set_exception(AssertionError(defect)) if defect else future.set_result(answer)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Gone())


def take_stdout() -> TextIO:
    """The pipe to the parent, for answers alone: libraries print as they like. Call it first."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


async def serve(answers: TextIO, first: dict[str, Any], handlers: Handlers) -> None:
    """The child's end: answer until the parent's end is closed."""
    tasks = set[asyncio.Task[None]]()
    print(json.dumps(first), file=answers)

    async def answer(number: int, what: str, arguments: dict[str, Any]) -> None:
        try:
            result = await handlers[what](**arguments)
        except Exception as error:
            result = {"defect": repr(error)}
        print(json.dumps([number, result]), file=answers)

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        task = asyncio.create_task(answer(*json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
