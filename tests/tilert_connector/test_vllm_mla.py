"""Stock vLLM on CPU_MLA; the state against transformers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.checkpoints import ensure
from tests.tilert_connector.live import CLOSE, decode_node, furthest, idle, random_prompt
from tests.tilert_connector.vllm_server import VllmServer, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 129, 600)
# vLLM 0.32's rotary kernel for the CPU misplaces MLA's tensors; torch computes them right.
FLAGS = ("--max-model-len", "1024", "--compilation-config")
ROTATE_IN_TORCH = json.dumps({"custom_ops": ["all", "-rotary_embedding"]})


@pytest.fixture(scope="module")
def model() -> Path:
    return ensure("tiny-mla")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with vllm_server(model, tmp_path_factory.mktemp("vllm") / "log", *FLAGS, ROTATE_IN_TORCH) as running:
        yield running


@pytest.mark.contract("H2", "H6", "H7")
async def test_the_state_of_every_length(server: VllmServer, model: Path) -> None:
    from tests.tilert_connector.reference_state import Reference

    reference = Reference(model)
    async with decode_node(model) as node:
        for tokens in LENGTHS:
            prompt = random_prompt(tokens, seed=tokens)
            held = await node.handed(server, f"h{tokens}", prompt)
            assert held.tokens == tokens
            assert furthest(node.state(tokens), reference.state(prompt)) < CLOSE, f"{tokens} tokens"
            node.receiver.release(held)
        size = node.layout.slot_bytes(1)
    await idle(server)
    assert server.metric("vllm:tilert_handoffs_total") == len(LENGTHS)
    assert server.metric("vllm:tilert_sent_bytes_total") == sum(LENGTHS) * size
    assert server.metric("vllm:tilert_commit_seconds_count") == len(LENGTHS)
    lines = [line for line in server.log.read_text().splitlines() if "handoff=h129 " in line]
    assert len(lines) == 1 and " end=committed tokens=129 " in lines[0] and " INFO " in lines[0]
