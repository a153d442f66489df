"""H5, H6, H13, R6 on the real stack: whatever becomes of a decode node, every reply is whole and right.

The node is stopped, killed and started again on its ports while requests of both classes run through the router; what
it had begun goes on in the native pool.
"""

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.processes import Part, Stack
from deploy.up import UpConfig, deployment
from deploy.up.deployment import Deployment
from router import DecodeNodeConfig, RouterConfig, running
from tests.e2e.serving import QUIET, Client, prompts

COUNT = 30 if "SPEEDTIER_SOAK_S" in os.environ else 3
NAME, REPLY, LIMIT_S = "tiny-gqa", 120, 6.0
KNOWN = 12 if COUNT > 3 else 5
TIMEOUTS = {"connect": 1.0, "prefill": 5.0, "handoff": 3.0, "stall": 2.0}
GRACE_S = 10.0


class Node:
    """The decode node, in a stack of its own so that its death ends nothing else."""

    def __init__(self, part: Part, directory: Path, ports: dict[str, int]) -> None:
        self.part, self.directory, self.ports = part, directory, ports
        self.stack: Stack

    async def start(self) -> None:
        self.stack = Stack(self.directory, QUIET)
        await self.stack.__aenter__()
        await self.stack.start([self.part])

    def signal(self, number: signal.Signals) -> None:
        config = str(self.part.command[-1]).encode()
        for entry in Path("/proc").iterdir():
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if config in command and b"guard" not in command:
                os.kill(int(entry.name), number)

    async def fault(self, how: str) -> None:
        if how == "stop":
            self.signal(signal.SIGSTOP)
            await asyncio.sleep(LIMIT_S)
            self.signal(signal.SIGCONT)
            return
        if how == "kill":
            self.signal(signal.SIGKILL)
        await self.stack.close()
        await self.start()


async def asked(router: Client, prompt: list[int], tier: str) -> tuple[int, Any, float]:
    """Status, the token ids of a stream or its error, seconds."""
    body = {"model": NAME, "prompt": prompt, "temperature": 0, "ignore_eos": True, "max_tokens": REPLY, "stream": True}
    begun, ids, error = time.monotonic(), [], None
    headers = {"x-traffic-class": tier}
    async with router.http.post(
        f"{router.url}/v1/completions", json={**body, "return_token_ids": True}, headers=headers
    ) as reply:
        status = reply.status
        if status != 200:
            return status, (await reply.json())["error"], time.monotonic() - begun
        for event in (await reply.text()).split("\n\n"):
            data = event.removeprefix("data: ")
            if data and data != "[DONE]":
                said = msgspec.json.decode(data)
                error = said.get("error", error)
                ids += [token for choice in said.get("choices", []) for token in choice["token_ids"] or []]
    return status, error or ids, time.monotonic() - begun


def parts(directory: Path) -> tuple[Deployment, Part, list[Part]]:
    """The stack, its decode node with fixed ports, and all else."""
    from deploy.processes import free_ports

    ctrl, data = free_ports(2)
    receiver = {"ctrl_port": ctrl, "data_port": data, "handoff_s": 4.0, "slot_wait_s": 3.0, "claim_s": 3.0}
    connector = {"handoff_s": 4.0, "hold_s": 3.0, "connect_s": 1.0, "offer_s": 3.0}
    config = UpConfig(
        model=NAME,
        port=0,
        directory=str(directory),
        decode={"receiver": receiver, "slots": 2},
        router={"timeouts": TIMEOUTS},
    )
    plan = deployment(config)
    changed = []
    for part in plan.parts:
        if part.name == "vllm":
            empty = '"kv_connector_extra_config":{}'
            said = f'"kv_connector_extra_config":{msgspec.json.encode(connector).decode()}'
            part = msgspec.structs.replace(part, command=tuple(one.replace(empty, said) for one in part.command))
            assert any(said in one for one in part.command)
        changed.append(part)
    return plan, next(one for one in changed if one.name == "decode"), [one for one in changed if one.name != "decode"]


@pytest.mark.contract("H5", "H6", "H13")
@pytest.mark.vllm
@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(2400)
async def test_a_decode_node_that_dies_costs_nobody_a_token(tmp_path: Path) -> None:
    import aiohttp

    plan, decode, others = parts(tmp_path)
    rng, texts = random.Random(8), prompts(12, 1000, 9)[-KNOWN:]
    node = Node(decode, tmp_path / "node", {})
    marked = 0
    async with (
        Stack(tmp_path, QUIET) as others_running,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        await node.start()
        try:
            await others_running.start(others)
            router, vllm = Client(http, plan.router_url), Client(http, plan.vllm_url)
            solo = [(await asked(router, one, "native"))[1] for one in texts]
            for number in range(COUNT):
                how = ("stop", "kill", "restart")[number % 3]
                at_once = [rng.randrange(KNOWN) for _ in range(3)]
                calls = [asked(router, texts[one], tier) for one in at_once for tier in ("speed", "native")]
                delay = rng.uniform(0, 0.15)

                async def later(delay: float = delay, how: str = how) -> None:
                    await asyncio.sleep(delay)
                    await node.fault(how)

                _, *replies = await asyncio.gather(later(), *calls)
                for index, (status, said, took) in enumerate(replies):
                    where = f"number {number} ({how}), reply {index}: {status} {said} after {took:.1f} s"
                    assert took < sum(TIMEOUTS.values()) + GRACE_S, where
                    assert status == 200 and said == solo[at_once[index // 2]], where
                marked += len(at_once)
                await works_again(router, texts[0], solo[0])
            await unreachable_control_port(plan, http, texts[0], solo[0])
            await no_block_is_held(vllm)
        finally:
            await node.stack.close()
    print(f"\n{COUNT} times the decode node was stopped, killed or started again: {marked} of {marked} streams right")


async def unreachable_control_port(plan: Deployment, http: Any, prompt: list[int], solo: list[int]) -> None:
    """Nothing ever reaches the decode node, so only it can know that it waits in vain; then the reply goes on."""
    nodes = (DecodeNodeConfig(url=plan.decode_url, ctrl_port=9),)
    urls = (plan.vllm_url,)
    config = RouterConfig(port=0, prefill=urls, native=urls, decode=nodes, tokenizer=str(plan.model))
    async with running(config) as url:
        status, said, took = await asked(Client(http, url), prompt, "speed")
    assert status == 200 and said == solo, said
    assert took < config.timeouts.handoff / 2


async def works_again(router: Client, prompt: list[int], solo: list[int]) -> None:
    """The next request succeeds, at the latest when what the fault left has run into its limits."""
    deadline = time.monotonic() + LIMIT_S + GRACE_S
    while True:
        status, said, _ = await asked(router, prompt, "speed")
        if status == 200:
            assert said == solo
            return
        assert time.monotonic() < deadline, f"still {status}: {said}"
        await asyncio.sleep(0.1)


async def no_block_is_held(vllm: Client) -> None:
    """vLLM's cache is empty, and its engine alive."""
    deadline = time.monotonic() + GRACE_S
    while True:
        async with vllm.http.get(vllm.url + "/metrics") as reply:
            lines = (await reply.text()).splitlines()
        used = [line for line in lines if line.startswith("vllm:kv_cache_usage_perc")]
        if used and all(float(line.rpartition(" ")[2]) == 0 for line in used):
            return
        assert time.monotonic() < deadline, used
        await asyncio.sleep(0.1)
