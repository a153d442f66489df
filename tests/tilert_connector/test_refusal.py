"""What cannot be handed off: found out at start-up, said to whoever claims it, and never sent."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tilert_connector.paged_model import PagedModel, fingerprint
from tilert_connector import HandoffFailed, Receiver, ReceiverConfig
from tilert_connector.cache import refusing_sender
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.errors import LayoutError
from tilert_connector.tracker import Chunk, Finish, Opening, Step


@pytest.mark.contract("H5", "H6")
async def test_a_server_that_can_hand_off_nothing_tells_each_claim_why() -> None:
    paged = PagedModel("gqa", 16, 8)
    slot = memoryview(bytearray(paged.layout.slot_bytes(64)))
    receiver = Receiver(ReceiverConfig(), paged.layout, fingerprint(family="gqa"), [slot], 64)
    await receiver.start()
    sender = refusing_sender(ConnectorConfig(), 0, "cache group 1 is of a kind that we do not read")
    try:
        for handoff in ("one", "two"):
            claim = Claim(host="127.0.0.1", ctrl_port=receiver.ctrl_port, handoff=handoff)
            opening = Opening(request=handoff, claim=claim, tokens=20)
            chunk = Chunk(request=handoff, blocks=(1, 2), available=20)
            finish = Finish(request=handoff, completed=True, delayed=True)
            sender.begin(Step(openings=(opening,)))
            sender.advance(Step(chunks=(chunk,), finished=(finish,)))
            with pytest.raises(HandoffFailed, match="cache group 1 is of a kind"):
                await receiver.committed(handoff, 10)
            async with asyncio.timeout(5):
                while (ended := sender.take_finished()) != {handoff}:
                    assert not ended
                    await asyncio.sleep(0.01)
            assert sender.take_finished() == set()
        assert receiver.status()["landed_bytes"] == 0
    finally:
        await asyncio.to_thread(sender.close)
        await receiver.close()


@pytest.fixture(scope="module")
def specs() -> SimpleNamespace:
    """vLLM's kinds of cache, and how we choose."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            MLAAttentionSpec,
            SlidingWindowSpec,
            UniformTypeKVCacheSpecs,
        )

        from tilert_connector.connector import _only_spec
    size: dict[str, Any] = {"block_size": 32, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    full, mla = FullAttentionSpec(**size), MLAAttentionSpec(**size)
    index = MLAAttentionSpec(**{**size, "head_size": 132})
    return SimpleNamespace(
        full=full,
        mla=mla,
        sliding=SlidingWindowSpec(**size, sliding_window=128),
        full_with_a_window=FullAttentionSpec(**size, sliding_window=128),
        mla_and_index=UniformTypeKVCacheSpecs.from_specs({"model.layers.0.attn": mla, "model.layers.0.indexer": index}),
        choose=_only_spec,
    )


def config(specs: SimpleNamespace, *kinds: str) -> SimpleNamespace:
    """vLLM's KVCacheConfig, as far as we read it."""
    groups = [
        SimpleNamespace(kv_cache_spec=getattr(specs, kind), layer_names=[f"model.layers.{index}.self_attn.attn"])
        for index, kind in enumerate(kinds)
    ]
    return SimpleNamespace(kv_cache_groups=groups)


@pytest.mark.slow  # importing vLLM takes seconds
@pytest.mark.contract("H7")
@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((), "0 cache groups"),
        (("full", "full"), "2 cache groups"),
        (
            ("full", "sliding"),
            "cache group 1 (SlidingWindowSpec with a window of 128 tokens, 1 layers from model.layers.1",
        ),
        (("full_with_a_window",), "cache group 0 (FullAttentionSpec with a window of 128 tokens"),
        (("mla_and_index",), "cache group 0 (UniformTypeKVCacheSpecs"),
    ],
)
def test_the_cache_group_that_we_do_not_read_is_named(
    specs: SimpleNamespace, kinds: tuple[str, ...], words: str
) -> None:
    with pytest.raises(LayoutError) as refused:
        specs.choose(config(specs, *kinds))
    assert words in str(refused.value)


@pytest.mark.slow
def test_one_group_of_a_kind_that_we_read_is_taken(specs: SimpleNamespace) -> None:
    assert specs.choose(config(specs, "full")) is specs.full
    assert specs.choose(config(specs, "mla")) is specs.mla
