"""The seam between a decode node and whatever decodes for it, with a public fake.

One request at a time. `decode` is the whole life of a request: it yields token ids as they come, and leaving it early
(closing the generator, cancelling the task) stops the engine within one step.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Literal, Protocol

import msgspec

from speedtier.errors import SpeedtierError

__all__ = ["DecodeEngine", "EngineBusy", "EngineFailed", "FakeEngine", "FinishReason", "Job", "Sampling"]

FinishReason = Literal["stop", "length", "cancelled"]
MOST_STOPS = 256


class EngineBusy(SpeedtierError):
    """A request is being decoded."""


class EngineFailed(SpeedtierError):
    """The engine stopped working; it has to be started again."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the next token is chosen, as vLLM's SamplingParams define it. temperature 0: greedy. top_k 0: all."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    stops: tuple[int, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One request. slot holds the state of `position` tokens; `token` comes next. Adds 1 to `most` tokens."""

    slot: int
    position: int
    token: int
    most: int
    sampling: Sampling = Sampling()


class DecodeEngine(Protocol):
    """What a decode node asks of an engine."""

    @property
    def busy(self) -> bool:
        """Whether a request is being decoded."""

    @property
    def failure(self) -> str | None:
        """Why the engine stopped working, or None."""

    async def start(self) -> None:
        """Become ready. Raises: EngineFailed."""

    async def close(self) -> None:
        """Stop; idempotent."""

    def decode(self, job: Job, ended: Callable[[FinishReason], None]) -> AsyncGenerator[list[int], None]:
        """Token ids as they come, at least one a time; `ended` gets the reason before the last item.

        Raises: EngineBusy, EngineFailed.
        """


class FakeEngine:
    """Counts upwards from the job's token. Faults on cue: `delay_s` a token, `fail_after` tokens, `raises` at once."""

    def __init__(self, delay_s: float = 0.0, fail_after: int | None = None) -> None:
        self.delay_s, self.fail_after = delay_s, fail_after
        self.busy = False
        self.failure: str | None = None
        self.jobs: list[Job] = []
        self.raises: Exception | None = None

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def decode(self, job: Job, ended: Callable[[FinishReason], None]) -> AsyncGenerator[list[int], None]:
        """As `DecodeEngine.decode`."""
        if self.busy:
            raise EngineBusy("the fake engine is decoding")
        if self.raises is not None:
            raise self.raises
        self.busy = True
        self.jobs.append(job)
        try:
            for count in range(1, job.most + 1):
                await asyncio.sleep(self.delay_s)
                if self.fail_after is not None and count > self.fail_after:
                    self.failure = "fails on cue"
                    raise EngineFailed(self.failure)
                token = job.token + count
                stopped = token in job.sampling.stops
                if stopped or count == job.most:
                    ended("stop" if stopped else "length")
                yield [token]
                if stopped:
                    return
        finally:
            self.busy = False
