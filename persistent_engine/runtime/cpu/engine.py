"""CpuEngine: resident workers behind the `DecodeEngine` seam, on asyncio's event loop."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable

import numpy as np

from persistent_engine.runtime.bind import Binding
from persistent_engine.runtime.cpu.control import Reason
from persistent_engine.runtime.cpu.resident import Resident
from persistent_engine.runtime.engine import MOST_STOPS, EngineBusy, EngineFailed, FinishReason, Job
from persistent_engine.runtime.outlast import outlast
from speedtier.errors import ConfigError

__all__ = ["CpuEngine"]

REASONS: dict[Reason, FinishReason] = {
    Reason.STOP: "stop",
    Reason.LENGTH: "length",
    Reason.CANCELLED: "cancelled",
}


class CpuEngine:
    """Decodes one request at a time on this machine's CPU."""

    def __init__(self, binding: Binding, slots: list[np.ndarray], deadline_s: float = 10.0) -> None:
        self._resident = Resident(binding, slots, deadline_s)
        self._limits = binding.plan.manifest.limits
        self._slots = len(slots)
        self._changed = asyncio.Event()
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being decoded."""
        return self._busy

    @property
    def failure(self) -> str | None:
        """Why the engine stopped working, or None."""
        return self._resident.failure()

    async def start(self) -> None:
        """Make the workers resident. Raises: EngineFailed."""
        await asyncio.to_thread(self._resident.start)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._resident.descriptor, self._notified)

    async def close(self) -> None:
        """End the workers; idempotent."""
        if self._loop is not None:
            self._loop.remove_reader(self._resident.descriptor)
            self._loop = None
        await asyncio.to_thread(self._resident.stop)

    def _notified(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._resident.descriptor)
        self._changed.set()

    def _check(self, job: Job) -> None:
        if self.failure is not None:
            raise EngineFailed(self.failure)
        if self._busy:
            raise EngineBusy("a request is being decoded; wait for it or use another node")
        capacity, vocabulary = self._limits["capacity"], self._limits["vocabulary"]
        if not 0 <= job.slot < self._slots:
            raise ConfigError(f"slot is {job.slot}; this engine has {self._slots}")
        if not (job.position >= 0 and job.most >= 1 and job.position + job.most <= capacity):
            raise ConfigError(f"{job.position} tokens of state and {job.most} more do not fit in {capacity}")
        if not 0 <= job.token < vocabulary:
            raise ConfigError(f"token is {job.token}; the vocabulary has {vocabulary}")
        if len(job.sampling.stops) > MOST_STOPS:
            raise ConfigError(f"{len(job.sampling.stops)} stop token ids; at most {MOST_STOPS}")

    async def decode(self, job: Job, ended: Callable[[FinishReason], None]) -> AsyncGenerator[list[int], None]:
        """As `DecodeEngine.decode`. Raises also: ConfigError when the job does not fit."""
        self._check(job)
        resident, sent = self._resident, 0
        sequence = resident.submit(job)  # raises before anything runs, or the request runs
        self._busy = True
        try:
            while True:
                reason = resident.finished(sequence)
                ready = resident.published()  # after `reason`: what a finished request published is all there
                if reason is Reason.FAILED:
                    raise EngineFailed(self.failure or "the engine failed")
                if reason is not None:
                    ended(REASONS[reason])
                if ready > sent:
                    tokens = resident.ring[sent:ready].tolist()
                    sent = ready
                    yield tokens
                if reason is not None:
                    return
                self._changed.clear()
                if resident.finished(sequence) is None and resident.published() == sent:
                    await self._wait()
        finally:
            await outlast(self._drain(sequence))

    async def _wait(self) -> None:
        """Until the workers published something; looks up once a second in case they died."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), 1.0)
        if self.failure is not None:
            raise EngineFailed(self.failure)

    async def _drain(self, sequence: int) -> None:
        """Leave no request behind: the workers are between requests when this returns."""
        if self._resident.finished(sequence) is None:
            self._resident.cancel(sequence)
            while self._resident.finished(sequence) is None and self.failure is None:
                await asyncio.sleep(0.001)
        self._busy = False
