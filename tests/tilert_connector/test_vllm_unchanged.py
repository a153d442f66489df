"""Loading the connector changes nothing for general traffic: blocks, schedules, answers; also where it can hand off
nothing.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoints import ensure
from tests.tilert_connector.live import DecodeNode, decode_node
from tests.tilert_connector.vllm_server import CONNECTORS
from tilert_connector import HandoffFailed

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
SOAK = "SPEEDTIER_SOAK_S" in os.environ


def trace(model: Path, out: Path, **options: Any) -> dict[str, Any]:
    """What vLLM scheduled and answered; see schedule_trace.py. Raises AssertionError with the log's end."""
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    settings |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "tests.tilert_connector.schedule_trace", str(model), str(out), json.dumps(options)]
    ran = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    report: dict[str, Any] = json.loads(out.read_text())
    return report | {"log": ran.stdout + ran.stderr}


async def both(model: Path, directory: Path, cache_mib: int, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without and with the connector, at the same time."""
    plain = asyncio.to_thread(trace, model, directory / "plain.json", cache_mib=cache_mib)
    options |= {"cache_mib": cache_mib, "connectors": CONNECTORS}
    loaded = asyncio.to_thread(trace, model, directory / "loaded.json", **options)
    one, other = await asyncio.gather(plain, loaded)
    return one, other


def counted(step: list[Any]) -> list[Any]:
    """A step with block ids counted, not named."""
    counts, new, (names, fresh, computed, resumed), *rest = step
    new = [[name, tokens, [len(ids) for ids in blocks]] for name, tokens, blocks in new]
    fresh = [blocks and [len(ids) for ids in blocks] for blocks in fresh]
    return [counts, new, [names, fresh, computed, resumed], *rest]


def check_equal(plain: dict[str, Any], loaded: dict[str, Any], ids: bool = True) -> None:
    """ids: the very same blocks, too. With sliding windows vLLM itself frees what left the window at another moment
    when any connector is loaded (`_connector_finished` in vllm/v1/core/sched/scheduler.py)."""
    assert any(step[3] for step in plain["steps"]), "no request was preempted: the cache is too large for this test"
    assert plain["blocks"] == loaded["blocks"] > 0
    assert plain["groups"] == loaded["groups"]
    assert plain["answers"] == loaded["answers"]
    steps = [one["steps"] if ids else [counted(step) for step in one["steps"]] for one in (plain, loaded)]
    assert len(steps[0]) == len(steps[1])
    for number, (one, other) in enumerate(zip(*steps, strict=True)):
        assert one == other, f"step {number}"


@pytest.mark.contract("H1")
@pytest.mark.soak
@pytest.mark.parametrize(("name", "cache_mib"), [("tiny-gqa", 5), ("tiny-mla", 8)][: 2 if SOAK else 1])
async def test_general_requests_are_scheduled_step_by_step_as_without_us(
    name: str, cache_mib: int, tmp_path: Path
) -> None:
    check_equal(*await both(ensure(name), tmp_path, cache_mib))


async def refusal(node: DecodeNode) -> str:
    """How the handoff ends on the decode node, and that it ends before its deadline."""
    with pytest.raises(HandoffFailed) as failed:
        await node.receiver.committed("hybrid", 200)
    return str(failed.value)


@pytest.mark.contract("H1", "H5", "H7")
async def test_a_model_with_several_cache_groups_is_served_and_its_claims_are_refused(tmp_path: Path) -> None:
    from tests.tilert_connector.hybrid_model import build_hybrid

    model = build_hybrid(tmp_path / "model")
    async with decode_node(ensure("tiny-gqa")) as node:
        waiting = asyncio.create_task(refusal(node))
        plain, loaded = await both(model, tmp_path, 2, marked=node.params("hybrid"))
        reason = await waiting
        assert node.receiver.status()["landed_bytes"] == 0
    check_equal(plain, loaded, ids=False)
    assert len(plain["groups"]) > 1 and "SlidingWindowSpec" in plain["groups"]
    assert "cache group" in reason and "SlidingWindowSpec with a window of 128 tokens" in reason
    assert loaded["log"].count("no attention state of this server can be handed off") == 1
    assert len(loaded["marked"]) == 1 and loaded["free"] == loaded["blocks"] - 1
    assert loaded["again"] == loaded["answers"][: len(loaded["again"])]
