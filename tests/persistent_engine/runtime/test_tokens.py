"""Greedy tokens against an independent implementation, and independence of placement."""

import pytest

from persistent_engine.runtime import Sampling
from tests.persistent_engine.rig import build, complete, prompt_of


def _oracle(directory: object, prompt: list[int], most: int) -> list[int]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=most, do_sample=False)
    return list(out[0, len(prompt) :].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 31, 33, 130])
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
async def test_greedy_equals_transformers(name: str, length: int) -> None:
    rig = build(name)
    prompt = prompt_of(rig.facts, length, seed=length)
    async with rig.engine() as engine:
        assert await complete(engine, prompt, 64) == _oracle(rig.directory, prompt, 64)


@pytest.mark.contract("E2")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
async def test_bits_do_not_depend_on_placement(name: str) -> None:
    """The whole slot, bit for bit, over worker counts (more than cores too), policies and tilings."""
    states = []
    for workers, policy, tiles in [(1, "list", 1), (2, "list", 1), (2, "round_robin", 2), (4, "list", 1)]:
        rig = build(name, workers=workers, policy=policy, tiles_per_worker=tiles)
        async with rig.engine(deadline_s=60) as engine:
            tokens = await complete(engine, prompt_of(rig.facts, 20), 24, Sampling(temperature=1.0, seed=7))
        states.append((tokens, rig.slots[0].tobytes()))
    assert all(state == states[0] for state in states)
    assert len(set(states[0][0])) > 5
