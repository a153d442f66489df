"""The tracker against a small scheduler of our own: random chunks, hits, preemption, aborts.

A worker that only follows the steps must find every prompt token of a completed request in the blocks that
it was told, whatever happened on the way.
"""

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilert_connector.claim import Claim
from tilert_connector.tracker import Opening, Step, Tracker

BLOCK = 4
CLAIM = Claim(host="d", ctrl_port=1, handoff="h")


class Request:
    def __init__(self, name: str, tokens: int, claimed: bool) -> None:
        self.name, self.tokens, self.claimed = name, tokens, claimed
        self.computed, self.blocks, self.ran = 0, list[int](), False
        self.preempted = False
        self.generated = 0


class Scheduler:
    """vLLM's scheduler in small. `memory`: block -> what each of its places holds."""

    def __init__(self, rng: random.Random, blocks: int) -> None:
        self.rng, self.tracker, self.worker = rng, Tracker(), Worker()
        self.free, self.memory = list(range(blocks)), dict[tuple[int, int], tuple[str, int]]()
        self.requests: dict[str, Request] = {}
        self.held: dict[str, Request] = {}

    def arrive(self, name: str, tokens: int, claimed: bool) -> None:
        self.requests[name] = Request(name, tokens, claimed)
        if claimed:
            self.tracker.claim(Opening(request=name, claim=CLAIM, tokens=tokens))

    def step(self) -> None:
        writes: list[tuple[int, int, str, int]] = []
        for request in list(self.requests.values()):
            event = self.rng.random()
            if request.ran and not request.preempted and event < 0.15:
                self.preempt(request)
            elif event < 0.8 and request.generated < 3:
                writes += self.run(request)
        step = pickle.loads(pickle.dumps(self.tracker.step()))
        self.worker.follow(step, lambda: [self.write(*one) for one in writes], self.memory)
        for request in list(self.requests.values()):
            if request.generated and self.rng.random() < 0.5:
                self.finish(request, completed=True)
            elif self.rng.random() < 0.05:
                self.finish(request, completed=False)

    def preempt(self, request: Request) -> None:
        self.free += request.blocks
        request.blocks, request.computed, request.preempted = [], 0, True
        self.tracker.preempt(request.name)

    def run(self, request: Request) -> list[tuple[int, int, str, int]]:
        """Schedule a random chunk; the first one may begin with a prefix-cache hit."""
        total = request.tokens + request.generated
        anew = not request.ran or request.preempted
        hit = 0
        if anew and self.rng.random() < 0.4:
            hit = self.rng.randrange(0, (total - 1) // BLOCK + 1) * BLOCK
        first = hit if anew else request.computed
        last = min(first + self.rng.randint(1, 9), total)
        need = -(-last // BLOCK) - len(request.blocks)
        if need > len(self.free) or last <= first:
            return []
        new = [self.free.pop() for _ in range(need)]
        request.blocks += new
        request.ran, request.preempted = True, False
        for token in range(hit if anew else 0):  # someone computed these before
            self.write(request.blocks[token // BLOCK], token % BLOCK, request.name, token)
        self.tracker.schedule(request.name, first, last - first, new, anew)
        request.computed = last
        if last == total:
            request.generated += 1
        return [(request.blocks[t // BLOCK], t % BLOCK, request.name, t) for t in range(first, last)]

    def write(self, block: int, place: int, name: str, token: int) -> None:
        self.memory[block, place] = name, token

    def finish(self, request: Request, completed: bool) -> None:
        del self.requests[request.name]
        delayed = self.tracker.finish(request.name, completed)
        assert delayed == (request.claimed and request.ran and not request.preempted)
        if delayed:
            self.held[request.name] = request
        else:
            self.free += request.blocks
        # One that was preempted after its last token, and not computed again, has nothing to hand off.
        whole = completed and request.claimed and request.computed >= request.tokens
        self.worker.expected[request.name] = request.tokens if whole else -1


class Worker:
    """Follows steps, and reads only what a step has told it."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[int]] = {}
        self.available: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self.expected: dict[str, int] = {}
        self.checked = 0
        self.reported: list[str] = []

    def follow(self, step: Step, compute: object, memory: dict[tuple[int, int], tuple[str, int]]) -> None:
        for name in step.preempted:
            self.blocks[name], self.available[name] = [], 0
        for opening in step.openings:
            assert opening.request not in self.blocks
            self.blocks[opening.request], self.available[opening.request] = [], 0
            self.tokens[opening.request] = opening.tokens
        compute()  # type: ignore[operator]
        for chunk in step.chunks:
            if chunk.restart:
                self.blocks[chunk.request] = []
            self.blocks[chunk.request] += chunk.blocks
            assert self.available[chunk.request] <= chunk.available <= self.tokens[chunk.request]
            self.available[chunk.request] = chunk.available
        for name, blocks in self.blocks.items():
            for token in range(self.available[name]):
                assert memory[blocks[token // BLOCK], token % BLOCK] == (name, token)
        for finish in step.finished:
            blocks, available = self.blocks.pop(finish.request), self.available.pop(finish.request)
            if finish.completed:
                assert available == self.tokens[finish.request] == self.expected[finish.request]
                self.checked += 1
            else:
                assert self.expected[finish.request] == -1
            if finish.delayed:
                self.reported.append(finish.request)


@pytest.mark.contract("H1", "H2", "H6")
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_a_worker_finds_every_token_of_every_completed_request(seed: int, lengths: list[int]) -> None:
    scheduler = Scheduler(random.Random(seed), blocks=24)
    for number, tokens in enumerate(lengths):
        scheduler.arrive(f"r{number}", tokens, claimed=number % 3 != 2)
    for _ in range(60):
        scheduler.step()
        for name in scheduler.worker.reported:
            scheduler.free += scheduler.held.pop(name).blocks
            scheduler.tracker.released([name])
        scheduler.worker.reported.clear()
    for request in list(scheduler.requests.values()):
        scheduler.finish(request, completed=False)
    scheduler.step()
    scheduler.tracker.released(scheduler.worker.reported)
    assert len(scheduler.tracker) == 0
    assert not scheduler.tracker.delaying
    assert scheduler.worker.blocks == {}


@pytest.mark.contract("H2")
def test_the_random_runs_reach_what_they_are_for() -> None:
    completed = preempted = 0
    for seed in range(40):
        scheduler = Scheduler(random.Random(seed), blocks=24)
        for number in range(6):
            scheduler.arrive(f"r{number}", 7 * number + 1, claimed=True)
        for _ in range(30):
            before = sum(request.preempted for request in scheduler.requests.values())
            scheduler.step()
            preempted += sum(r.preempted for r in scheduler.requests.values()) > before
            scheduler.free += [b for name in scheduler.worker.reported for b in scheduler.held[name].blocks]
            scheduler.worker.reported.clear()
        completed += scheduler.worker.checked
    assert completed > 50 and preempted > 50


@pytest.mark.contract("H1")
def test_a_request_that_is_not_ours_leaves_no_trace() -> None:
    tracker = Tracker()
    tracker.schedule("other", 0, 8, [1, 2], anew=True)
    tracker.preempt("other")
    assert not tracker.finish("other", completed=True)
    assert not tracker.step() and len(tracker) == 0 and not tracker.delaying


@pytest.mark.contract("H2")
def test_a_prefix_hit_is_sent_from_the_first_token() -> None:
    tracker = Tracker()
    tracker.claim(Opening(request="r", claim=CLAIM, tokens=20))
    tracker.schedule("r", 16, 4, [5, 6, 7, 8, 9], anew=True)
    (chunk,) = tracker.step().chunks
    assert (chunk.blocks, chunk.available, chunk.restart) == ((5, 6, 7, 8, 9), 20, False)


@pytest.mark.contract("H2")
def test_generated_tokens_are_never_described() -> None:
    tracker = Tracker()
    tracker.claim(Opening(request="r", claim=CLAIM, tokens=5))
    tracker.schedule("r", 0, 5, [1, 2], anew=True)
    assert [chunk.available for chunk in tracker.step().chunks] == [5]
    tracker.schedule("r", 5, 1, [], anew=False)
    assert not tracker.step()
    tracker.preempt("r")
    tracker.schedule("r", 0, 7, [3, 4], anew=True)
    step = tracker.step()
    assert step.preempted == ("r",)
    assert [(chunk.available, chunk.restart) for chunk in step.chunks] == [(5, True)]


@pytest.mark.contract("H6")
def test_a_refused_request_delays_nothing() -> None:
    tracker = Tracker()
    tracker.claim(Opening(request="r", claim=CLAIM, tokens=5, refusal="it has an adapter"))
    tracker.schedule("r", 0, 5, [1, 2], anew=True)
    step = tracker.step()
    assert [opening.refusal for opening in step.openings] == ["it has an adapter"] and not step.chunks
    assert not tracker.finish("r", completed=True)


@pytest.mark.contract("H6")
def test_delayed_until_released() -> None:
    tracker = Tracker()
    tracker.claim(Opening(request="r", claim=CLAIM, tokens=5))
    assert not tracker.finish("r", completed=False)  # never ran: no blocks
    tracker.claim(Opening(request="s", claim=CLAIM, tokens=5))
    tracker.schedule("s", 0, 5, [1, 2], anew=True)
    assert tracker.finish("s", completed=True) and tracker.delaying
    tracker.released(["t"])
    assert tracker.delaying
    tracker.released(["s"])
    assert not tracker.delaying
