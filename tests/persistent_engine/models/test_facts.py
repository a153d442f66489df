"""Model facts: what the engine cannot compute exactly is refused by field name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.checkpoints import ensure
from persistent_engine.models import read_facts, rope_table
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
