"""Model facts: what the engine cannot compute exactly is refused by field name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.checkpoints import ensure
from persistent_engine.models import KNOWN, MlaFacts, facts_of, plan_facts, read_facts, rope_table, runnable, source_of
from speedtier.errors import PlanError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["GPT2LMHeadModel"]),
        ("hidden_act", "gelu"),
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("rope_interleave", False),
        ("attention_bias", True),
        ("quantization_config", {"quant_method": "fp8"}),
        ("dtype", "float16"),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}),
    ],
)
def test_what_is_not_run_is_named(tmp_path: Path, field: str, value: Any) -> None:
    config = json.loads((ensure("tiny-mla") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))
    shown = {"architectures": "GPT2LMHeadModel", "rope_parameters": "yarn"}.get(field, field)
    with pytest.raises(PlanError, match=shown):
        read_facts(tmp_path)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"config\.json"):
        read_facts(tmp_path)
    config = json.loads((ensure("tiny-gqa") / "config.json").read_text())
    del config["vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PlanError, match="vocab_size"):
        read_facts(tmp_path)


def test_rope_table_is_vllms() -> None:
    torch = pytest.importorskip("torch")
    inverse = 1.0 / (10000.0 ** (torch.arange(0, 64, 2, dtype=torch.float) / 64))
    angles = torch.einsum("i,j->ij", torch.arange(4096, dtype=torch.float), inverse)
    expected = torch.cat((angles.cos(), angles.sin()), dim=-1).numpy()
    np.testing.assert_allclose(rope_table(10000.0, 4096, 64), expected, atol=2e-4)  # one last place of an angle


@pytest.mark.parametrize("name", KNOWN)
def test_published_models_have_facts_and_a_source(name: str) -> None:
    facts = facts_of(name)
    assert facts.layers > 20 and facts.vocabulary > 100_000
    assert "config.json" in source_of(name)


def test_what_the_engine_lacks_stops_it_and_not_the_planning() -> None:
    facts = facts_of("glm-5.2")
    assert facts.indexer is not None
    assert [layer for layer, full in enumerate(facts.indexer.full) if full][:5] == [0, 1, 2, 6, 10]
    assert sum(facts.indexer.full) == 21
    with pytest.raises(PlanError, match="sparse attention"):
        runnable(facts)
    with pytest.raises(PlanError, match="yarn"):
        runnable(facts_of("deepseek-v3"))
    assert runnable(facts_of("qwen3-0.6b")).tied


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(PlanError, match=r"glm-5\.1"):
        facts_of("glm-9")


@pytest.mark.parametrize(("name", "kind"), [("glm-5", "GlmMoeDsaConfig"), ("deepseek-v3.2", "DeepseekV32Config")])
def test_copies_agree_with_the_defaults_of_transformers(name: str, kind: str) -> None:
    defaults = getattr(pytest.importorskip("transformers"), kind)()
    facts = facts_of(name)
    assert isinstance(facts.attention, MlaFacts) and facts.indexer is not None and facts.experts is not None
    own = (facts.layers, facts.hidden, facts.heads, facts.vocabulary, facts.intermediate, facts.eps)
    assert own == (
        defaults.num_hidden_layers,
        defaults.hidden_size,
        defaults.num_attention_heads,
        defaults.vocab_size,
        defaults.intermediate_size,
        defaults.rms_norm_eps,
    )
    assert facts.attention.q_rank == defaults.q_lora_rank and facts.attention.value == defaults.v_head_dim
    assert (facts.indexer.heads, facts.indexer.width) == (defaults.index_n_heads, defaults.index_head_dim)
    assert (facts.experts.count, facts.experts.active) == (defaults.n_routed_experts, defaults.num_experts_per_tok)


@pytest.mark.parametrize("wrong", [["full"], ["shared", "full", "full"]])
def test_lists_of_indexers_that_do_not_fit_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    config = json.loads((ensure("tiny-mla") / "config.json").read_text())
    sparse = {"architectures": ["GlmMoeDsaForCausalLM"], "index_n_heads": 2, "index_head_dim": 64, "index_topk": 8}
    (tmp_path / "config.json").write_text(json.dumps({**config, **sparse, "indexer_types": wrong}))
    with pytest.raises(PlanError, match="indexer_types"):
        plan_facts(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, **sparse, "index_topk_freq": 2}))
    indexer = plan_facts(tmp_path).indexer
    assert indexer is not None and indexer.full == (True, True, False)
    with pytest.raises(PlanError, match="sparse attention"):
        read_facts(tmp_path)
