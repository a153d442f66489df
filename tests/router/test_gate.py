"""The gate (R4): one request per slot, in order, woken at once, places given up."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config import DecodeNodeConfig, Timeouts
from router.errors import Busy, PeerBroken
from router.fake import FakeDecode
from router.gate import Gate, Lease, Queue
from router.node import Capabilities, Node
from tests.router.stack import Open, until

pytestmark = pytest.mark.contract("R4")


def any_node(_: Node) -> bool:
    return True


def nodes(*slots: int, session: Any = None) -> list[Node]:
    made = []
    for number, count in enumerate(slots):
        node = Node(DecodeNodeConfig(url=f"http://n{number}"), session, Timeouts())
        node.capabilities = Capabilities(max_tokens=100, slots=count, sampling=frozenset())
        made.append(node)
    return made


async def test_waiters_are_served_in_order_and_at_once() -> None:
    gate = Gate(nodes(1), [Queue("a", 10, 5)])
    held = await gate.acquire("a", any_node)
    served: list[int] = []

    async def wait(number: int) -> None:
        lease = await gate.acquire("a", any_node)
        served.append(number)
        await asyncio.sleep(0)
        lease.release()

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await until(lambda: gate.waiting == 5)
    held.release()
    assert gate.waiting == 4, "the first was woken by the release itself"
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3, 4]


async def test_queue_and_wait_are_bounded() -> None:
    gate = Gate(nodes(1), [Queue("a", 1, 0.05)])
    held = await gate.acquire("a", any_node)
    late = asyncio.create_task(gate.acquire("a", any_node))
    await until(lambda: gate.waiting == 1)
    with pytest.raises(Busy, match="queue_limit"):
        await gate.acquire("a", any_node)
    with pytest.raises(Busy, match="queue_wait_s"):
        await late
    held.release()
    (await gate.acquire("a", any_node)).release()


async def test_a_waiter_that_leaves_gives_up_its_place() -> None:
    gate = Gate(nodes(1), [Queue("a", 10, 5)])
    held = await gate.acquire("a", any_node)
    leaver, stayer = (asyncio.create_task(gate.acquire("a", any_node)) for _ in range(2))
    await until(lambda: gate.waiting == 2)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    held.release()
    (await stayer).release()


async def test_a_slot_handed_to_a_waiter_that_leaves_goes_to_the_next() -> None:
    gate = Gate(nodes(1), [Queue("a", 10, 5)])
    held = await gate.acquire("a", any_node)
    leaver, stayer = (asyncio.create_task(gate.acquire("a", any_node)) for _ in range(2))
    await until(lambda: gate.waiting == 2)
    held.release()  # the slot is the leaver's now, and it has not run yet
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    (await asyncio.wait_for(stayer, 1)).release()


async def served_order(gate: Gate, held: Lease, names: list[str]) -> list[str]:
    """Callers of these classes wait for the lease that is held; the order in which they are served."""
    served: list[str] = []

    async def wait(name: str) -> None:
        lease = await gate.acquire(name, any_node)
        served.append(name)
        await asyncio.sleep(0)
        lease.release()

    waiting = [asyncio.create_task(wait(name)) for name in names]
    await until(lambda: gate.waiting == len(names))
    held.release()
    await asyncio.gather(*waiting)
    return served


async def test_classes_share_by_weight_and_none_starves() -> None:
    gate = Gate(nodes(1), [Queue("heavy", 100, 5, 3.0), Queue("light", 100, 5, 1.0)])
    held = await gate.acquire("heavy", any_node)
    served = await served_order(gate, held, ["light"] * 40 + ["heavy"] * 40)
    for start in range(0, 48, 4):
        assert served[start : start + 4].count("light") == 1, served
    assert served[-20:] == ["light"] * 20, "a class that waits alone gets everything"


async def test_a_class_that_comes_late_has_saved_up_nothing() -> None:
    gate = Gate(nodes(1), [Queue("a", 100, 5), Queue("b", 100, 5)])
    for _ in range(50):
        held = await gate.acquire("a", any_node)
        late = asyncio.create_task(gate.acquire("a", any_node))
        await until(lambda: gate.waiting == 1)
        held.release()
        (await late).release()
    held = await gate.acquire("a", any_node)
    served = await served_order(gate, held, ["b"] * 10 + ["a"] * 10)
    assert all(served[start : start + 2] in (["a", "b"], ["b", "a"]) for start in range(0, 20, 2)), served


async def test_queues_are_bounded_each_by_itself() -> None:
    gate = Gate(nodes(1), [Queue("a", 0, 5), Queue("b", 1, 5)])
    held = await gate.acquire("a", any_node)
    waiting = asyncio.create_task(gate.acquire("b", any_node))
    await until(lambda: gate.waiting == 1)
    for name in ("a", "b"):
        with pytest.raises(Busy, match=f"class '{name}'"):
            await gate.acquire(name, any_node)
    held.release()
    (await waiting).release()


async def test_the_preferred_node_is_taken_while_it_is_free() -> None:
    gate = Gate(nodes(1, 1, 1), [Queue("a", 10, 5)])
    first = await gate.acquire("a", any_node, "n2")
    second = await gate.acquire("a", any_node, "n2")
    assert first.node.name == "n2" and second.node.name != "n2"


async def test_retry_after_is_the_time_until_a_slot_is_free_for_the_caller() -> None:
    now = 1000.0
    gate = Gate(nodes(1, 1), [Queue("a", 10, 5)], clock=lambda: now)
    assert gate.retry_after_s() == 1
    for _ in range(40):
        lease = await gate.acquire("a", any_node)
        lease.used = True
        now += 10
        lease.release()
    assert 9 < gate.mean_s < 10.1
    first = await gate.acquire("a", any_node)
    now += 4
    second = await gate.acquire("a", any_node)
    assert gate.retry_after_s() == 6, "the first has six more seconds"
    waiting = [asyncio.create_task(gate.acquire("a", any_node)) for _ in range(3)]
    await until(lambda: gate.waiting == 3)
    assert gate.retry_after_s() == 20, "three come before: after 6, 10 and 16; the next after 20"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    first.release()
    second.release()
    assert gate.waiting == 0


async def test_a_second_release_does_nothing() -> None:
    [node] = nodes(1)
    gate = Gate([node], [Queue("a", 1, 1)])
    lease = await gate.acquire("a", any_node)
    lease.release()
    lease.release()
    assert node.in_flight == 0


async def test_a_waiter_that_no_free_node_fits_lets_others_pass() -> None:
    small, large = nodes(1, 1)
    gate = Gate([small, large], [Queue("a", 10, 5)])
    held = [await gate.acquire("a", any_node), await gate.acquire("a", any_node)]
    picky = asyncio.create_task(gate.acquire("a", lambda node: node is large))
    modest = asyncio.create_task(gate.acquire("a", any_node))
    await until(lambda: gate.waiting == 2)
    next(lease for lease in held if lease.node is small).release()
    assert (await asyncio.wait_for(modest, 1)).node is small
    next(lease for lease in held if lease.node is large).release()
    assert (await asyncio.wait_for(picky, 1)).node is large


async def test_everyone_is_sent_away_when_no_node_is_left() -> None:
    gate = Gate(nodes(1), [Queue("a", 10, 5)])
    await gate.acquire("a", any_node)
    waiting = [asyncio.create_task(gate.acquire("a", any_node)) for _ in range(3)]
    await until(lambda: gate.waiting == 3)
    gate.fail(PeerBroken("gone"))
    assert all(isinstance(end, PeerBroken) for end in await asyncio.gather(*waiting, return_exceptions=True))
    assert gate.waiting == 0


@settings(max_examples=60, deadline=None)
@given(slots=st.lists(st.integers(1, 3), min_size=1, max_size=3), moves=st.lists(st.integers(0, 30), max_size=60))
def test_no_slot_is_used_twice_and_none_is_lost(slots: list[int], moves: list[int]) -> None:
    async def play() -> None:
        made = nodes(*slots)
        gate = Gate(made, [Queue("a", 20, 5)])
        tasks: list[asyncio.Task[Any]] = []
        held = []
        for move in moves:
            if move % 3 == 0:
                tasks.append(asyncio.create_task(gate.acquire("a", any_node)))
            elif move % 3 == 1 and held:
                held.pop(move % len(held)).release()
            elif tasks:
                tasks.pop(move % len(tasks)).cancel()
            if move % 2:
                await asyncio.sleep(0)
                held += [task.result() for task in tasks if task.done() and not task.cancelled()]
                tasks = [task for task in tasks if not task.done()]
            assert all(0 <= node.in_flight <= count for node, count in zip(made, slots, strict=True))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held += [task.result() for task in tasks if task.done() and not task.cancelled()]
        for lease in held:
            lease.release()
        await asyncio.sleep(0)
        # Cancelled tasks that had been handed a slot gave it back.
        assert all(node.in_flight == 0 for node in made) and gate.waiting == 0

    asyncio.run(play())


async def test_many_callers_of_one_slot_are_all_served(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41, 42])
    stack = await open_stack(nodes=[node])
    replies = await asyncio.gather(*(stack.whole(max_tokens=3) for _ in range(50)))
    assert {reply["usage"]["completion_tokens"] for reply in replies} == {3}
    assert node.most_active == 1


async def test_callers_beyond_the_queue_are_told_to_come_back(open_stack: Open) -> None:
    node = FakeDecode(tokens=[41] * 20, pace_s=0.01)
    stack = await open_stack(nodes=[node], queue_limit=2)

    async def ask() -> tuple[int, str | None]:
        async with stack.ask(max_tokens=20) as reply:
            await reply.read()
            return reply.status, reply.headers.get("retry-after")

    ends = await asyncio.gather(*(ask() for _ in range(8)))
    assert sorted(status for status, _ in ends) == [200] * 3 + [429] * 5
    assert all(int(told or 0) >= 1 for status, told in ends if status == 429)


async def test_two_nodes_share_the_work(open_stack: Open) -> None:
    pair = [FakeDecode(tokens=[41] * 10, pace_s=0.01), FakeDecode(tokens=[41] * 10, pace_s=0.01)]
    stack = await open_stack(nodes=pair)
    await asyncio.gather(*(stack.whole(max_tokens=11) for _ in range(6)))
    assert [node.most_active for node in pair] == [1, 1]
    assert sorted(len(node.orders) for node in pair) == [3, 3]
