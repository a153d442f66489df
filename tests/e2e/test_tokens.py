"""The promise: at float32 the speed tier's tokens are vLLM's own, and general traffic does not notice us."""

import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.checkpoints import ensure
from deploy.up import UpConfig
from persistent_engine.models import read_facts
from tests.e2e.serving import Client, limited, plain_vllm, prompts, stack

COUNT = 200 if "SPEEDTIER_SOAK_S" in os.environ else 60
TOKENS = 64


def _told(reply: dict[str, Any]) -> dict[str, Any]:
    """What a client reads of a reply. Id and time are the server's own; vLLM's fingerprint hashes its settings, in
    which a connector is one."""
    own = ("id", "created", "system_fingerprint")
    return {key: value for key, value in reply.items() if key not in own}


def _ids(reply: dict[str, Any]) -> list[int]:
    ids: list[int] = reply["choices"][0]["token_ids"]
    return ids


@pytest.mark.contract("H1", "H2")
@pytest.mark.vllm
@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
async def test_speed_tier_equals_native_while_both_are_served(name: str, tmp_path: Path) -> None:
    """Marked and general requests (200 of each in the soak) in the same batches; a vLLM without us is the judge."""
    vocabulary = read_facts(ensure(name)).vocabulary
    part, plain_url = plain_vllm(ensure(name), name, "float32")
    marked, general = prompts(COUNT, vocabulary, 1), prompts(COUNT, vocabulary, 2)
    async with (
        stack(tmp_path, UpConfig(model=name), part) as (_, router, _running),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as http,
    ):
        plain = Client(http, plain_url)
        # One by one, first tokens with their logits: not a bit may change by our being loaded.
        for prompt in general[:25]:
            alone = await plain.complete(name, prompt, max_tokens=8, logprobs=5)
            beside = await router.complete(name, prompt, "native", max_tokens=8, logprobs=5)
            assert _told(alone) == _told(beside)
        judge = await limited([plain.complete(name, one, max_tokens=TOKENS) for one in marked + general], 16)
        calls = [
            router.complete(name, one, tier, max_tokens=TOKENS)
            for pair in zip(marked, general, strict=True)
            for one, tier in zip(pair, ("speed", "native"), strict=True)
        ]
        mixed = await limited(calls, 12)
        speed, native = mixed[0::2], mixed[1::2]
    same = sum(_ids(one) == _ids(other) for one, other in zip(speed, judge[:COUNT], strict=True))
    print(f"\n{name}: {same} of {COUNT} speed-tier replies identical to vLLM's ({TOKENS} tokens each)")
    assert same == COUNT
    assert all(len(_ids(one)) == TOKENS for one in speed)
    for one, other in zip(speed, judge[:COUNT], strict=True):
        assert one["choices"][0]["text"] == other["choices"][0]["text"]
        assert one["usage"]["completion_tokens"] == other["usage"]["completion_tokens"]
    for one, other in zip(native, judge[COUNT:], strict=True):
        assert _told(one) == _told(other)
