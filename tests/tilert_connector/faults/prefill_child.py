"""A prefill node in small: blocks that are reused at once, an engine loop, the real tracker and sender."""

import asyncio
import faulthandler
import sys
import threading
import time
import traceback
from typing import Any

import numpy as np

from tests.tilert_connector.faults.child import descriptors, serve, take_stdout
from tests.tilert_connector.faults.terms import MARK, PREFILL, model, prompt
from tilert_connector.claim import Claim
from tilert_connector.sender import Sender
from tilert_connector.tracker import Opening, Tracker
from tilert_connector.transport import Fault, FaultyCarriers, open_carriers

BLOCKS = 64


class Request:
    """tokens, seed: what is prefilled. chunk: tokens a step. preempt, abort: when that many are computed; -1: never."""

    def __init__(self, name: str, tokens: int, seed: int, chunk: int, preempt: int, abort: int) -> None:
        self.name, self.tokens, self.seed, self.chunk = name, tokens, seed, chunk
        self.preempt, self.abort = preempt, abort
        self.blocks: list[int] = []
        self.computed = 0
        self.anew = True
        self.released = threading.Event()


class Engine(threading.Thread):
    """Steps for ever, as vLLM's does; `beats` counts them. A block that is free is overwritten at once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.model = model()
        self.tracker = Tracker()
        exporter = self.model.exporter
        self.carriers = FaultyCarriers(open_carriers(exporter.layout, exporter.memories))
        self.sender = Sender(PREFILL, 0, MARK, exporter, self.carriers)
        self.free = list(range(BLOCKS))
        self.running: dict[str, Request] = {}
        self.arriving: list[tuple[Request, Claim]] = []
        self.holding: dict[str, Request] = {}
        self.beats = 0
        self.failure = ""

    def run(self) -> None:
        try:
            while True:
                faulthandler.dump_traceback_later(2.0)  # shows who keeps the interpreter, if someone does
                self.step()
                self.beats += 1
                time.sleep(0.002)
        except Exception as error:
            self.failure = repr(error)

    def step(self) -> None:
        while self.arriving:
            request, claim = self.arriving.pop()
            self.running[request.name] = request
            told = np.asarray(prompt(request.seed, request.tokens), "<u4").tobytes()
            self.tracker.claim(Opening(request=request.name, claim=claim, tokens=request.tokens, prompt=told))
        ran = [one for one in list(self.running.values()) if self._schedule(one)]
        step = self.tracker.step()
        self.sender.begin(step)
        for request in ran:
            before, request.computed = request.computed, min(request.tokens, request.computed + request.chunk)
            self.model.prefill(request.blocks, before, request.computed, request.seed)
        for layer in range(len(self.model.exporter.layers)):
            self.sender.save(layer)
        self.sender.advance(step)
        for name in self.sender.take_finished():
            self.tracker.released([name])
            self._release(self.holding.pop(name))  # KeyError: reported twice, or never delayed

    def _schedule(self, request: Request) -> bool:
        if request.abort >= 0 and request.computed >= request.abort:
            self._end(request, completed=False)
            return False
        if request.computed == request.tokens:
            self._end(request, completed=True)
            return False
        if request.preempt >= 0 and request.computed >= request.preempt:
            request.preempt, request.computed, request.anew = -1, 0, True
            self.tracker.preempt(request.name)
            self._free(request)
            return False
        count = min(request.chunk, request.tokens - request.computed)
        need = -(-(request.computed + count) // self.model.block_size) - len(request.blocks)
        if need > len(self.free):
            return False
        new = [self.free.pop(0) for _ in range(need)]
        request.blocks += new
        blocks = request.blocks if request.anew else new
        self.tracker.schedule(request.name, request.computed, count, blocks, request.anew)
        request.anew = False
        return True

    def _end(self, request: Request, completed: bool) -> None:
        del self.running[request.name]
        if self.tracker.finish(request.name, completed):
            self.holding[request.name] = request
        else:
            self._release(request)

    def _release(self, request: Request) -> None:
        self._free(request)
        request.released.set()

    def _free(self, request: Request) -> None:
        self.model.scribble(request.blocks)
        self.free += request.blocks
        request.blocks = []


class Node:
    """What the schedule asks of it."""

    def __init__(self) -> None:
        self.engine = Engine()

    async def prefill(
        self, request: str, handoff: str, ctrl_port: int, faults: list[list[Any]], **how: int
    ) -> dict[str, Any]:
        """Returns when the blocks are vLLM's again."""
        for frame, name in faults:
            self.engine.carriers.fault(Fault(name), frame)
        claim = Claim(host="127.0.0.1", ctrl_port=ctrl_port, handoff=handoff)
        asked = Request(request, **how)
        self.engine.arriving.append((asked, claim))
        while not asked.released.is_set():
            await asyncio.sleep(0.002)
        return {"released": True}

    async def calm(self) -> bool:
        """No fault is to come."""
        self.engine.carriers.clear()
        return True

    async def status(self) -> dict[str, Any]:
        """Whether the engine lives, and what is held."""
        engine, before, deadline = self.engine, self.engine.beats, time.monotonic() + 3
        while engine.beats == before and not engine.failure and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        alive = engine.beats > before and not engine.failure
        if not alive and not engine.failure and engine.ident is not None:
            frame = sys._current_frames().get(engine.ident)
            engine.failure = "".join(traceback.format_stack(frame))
        return {
            "alive": alive,
            "failure": engine.failure,
            "free": len(engine.free),
            "held": sorted(engine.holding),
            "descriptors": descriptors(),
            "threads": threading.active_count(),
        }


async def main() -> None:
    answers = take_stdout()
    node = Node()
    node.engine.start()
    await serve(answers, {"blocks": BLOCKS}, {"prefill": node.prefill, "status": node.status, "calm": node.calm})


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
