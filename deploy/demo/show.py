"""`speedtier demo`: start everything, ask both tiers the same, compare every token.

Both tiers first answer at the same time, for the eye; then each question is measured alone, for the table.

Invariant: it ends with status 0 only if every token of every answer agreed, and leaves no process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiohttp
from rich.console import Console, RenderableType

from deploy.checkpoints import NAMES
from deploy.demo.ask import Answer, DemoFailed, ask
from deploy.demo.config import DemoConfig
from deploy.demo.questions import QUESTIONS, WARM_UP, Messages
from deploy.demo.report import Pair, same, table
from deploy.demo.screen import TIERS, Screen
from deploy.processes import Stack, run
from deploy.up import Deployment, UpConfig, deployment

__all__ = ["demo", "show"]

T = TypeVar("T")

_DEATH_SHOWS_S = 1.0
_TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5)


def demo(config: DemoConfig) -> None:
    """Raises `DemoFailed` when an answer differs or a tier fails, `PartFailed` when a part dies."""
    run(show(config, Console(highlight=False)))


async def show(config: DemoConfig, console: Console, plan_of: Callable[[UpConfig], Deployment] = deployment) -> None:
    """The whole demo on `console`, with the stack that `plan_of` works out. Raises as `demo` does."""
    names = NAMES if config.model == "both" else (config.model,)
    shown: list[RenderableType] = []
    wrong: list[str] = []
    for name in names:
        console.rule(f"[bold]{name}[/bold]")
        plan = plan_of(UpConfig(model=name, port=0))
        console.print(f"starting vLLM, decode node and router; logs: {plan.directory}", soft_wrap=True)
        async with Stack(plan.directory, console) as stack:
            await stack.start(plan.parts)
            raced, measured = await _unless_died(stack, _ask_all(config, plan, console))
        agreeing, total = same(raced + measured)
        shown.append(table(f"{name}, float32, {config.tokens} tokens, one request at a time", measured))
        shown.append(f"identical tokens: {agreeing} of {total}")
        wrong += [f"{name}: {pair.difference()}" for pair in raced + measured if not pair.same()]
    console.rule()
    for one in shown:
        console.print(one)
    if wrong:
        raise DemoFailed("the tiers differ:\n  " + "\n  ".join(wrong))


async def _unless_died(stack: Stack, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; raises `PartFailed` as soon as a part dies."""
    task, died = asyncio.create_task(work), asyncio.create_task(stack.died())
    try:
        await asyncio.wait({task, died}, return_when="FIRST_COMPLETED")
        if not task.done() or task.exception() is not None:
            # A broken answer is often the first sign of a dead part, which explains more.
            await asyncio.wait({died}, timeout=_DEATH_SHOWS_S)
        if died.done():
            await died
        return await task
    finally:
        task.cancel()
        died.cancel()
        await asyncio.gather(task, died, return_exceptions=True)


async def _ask_all(config: DemoConfig, plan: Deployment, console: Console) -> tuple[list[Pair], list[Pair]]:
    raced, measured = [], []
    async with aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=False) as session:

        async def one(tier: str, messages: Messages, screen: Screen | None = None) -> Answer:
            seen = screen.seen if screen is not None else lambda _: None
            return await ask(session, plan.router_url, plan.served_name, tier, messages, config.tokens, seen)

        for tier in TIERS:
            await one(tier, WARM_UP)
        for question in QUESTIONS:
            with Screen(console, question) as screen:
                raced.append(Pair(*await asyncio.gather(*(one(tier, question, screen) for tier in TIERS))))
        for question in QUESTIONS * config.rounds:
            measured.append(Pair(await one(TIERS[0], question), await one(TIERS[1], question)))
    return raced, measured
